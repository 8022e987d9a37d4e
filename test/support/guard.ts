/**
 * Tidies up after a test process that died in a way no hook of its own sees: a signal, an error while its file was
 * loaded. A shell waits at the end of a pipe; when the pipe closes without a farewell, it ends the service and its
 * sandboxes and removes the folder. In either case it removes the control groups, once the kernel lets go of them.
 */

import { type ChildProcess, spawn } from 'node:child_process';

const SCRIPT = `
groups() {
  find /sys/fs/cgroup -depth -type d -path "*/berth/$service*" "$@" 2> /dev/null
}
remove_groups() {
  service=$(printf %s "$1/data/sandbox/instances" | sha256sum | cut -c 1-16)
  tries=0
  while [ -n "$(groups -print)" ] && [ $tries -lt 50 ]; do
    groups -exec rmdir {} ';'
    sleep 0.1
    tries=$((tries + 1))
  done
  find /sys/fs/cgroup -depth -type d -name berth -exec rmdir {} ';' 2> /dev/null
}
pid=none
while read -r line; do
  [ "$line" = farewell ] && { remove_groups "$1"; exit 0; }
  pid=$line
done
[ "$pid" = none ] || kill -9 "$pid"
for process in /proc/[0-9]*; do
  if grep -qsF "$1/data/sandbox/" "$process/mountinfo" "$process/cmdline"; then
    kill -9 "\${process#/proc/}"
  fi
done
sleep 0.2
rm -rf "$1"
remove_groups "$1"
`;

export class Guard {
  private readonly shell: ChildProcess;

  constructor(folder: string) {
    // Of its own process group, so that Ctrl-C in a terminal does not end it as well.
    this.shell = spawn('sh', ['-c', SCRIPT, 'guard', folder], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    this.shell.unref();
    this.shell.stdin?.on('error', () => undefined);
    const pipe = this.shell.stdin;
    if (pipe !== null && 'unref' in pipe && typeof pipe.unref === 'function') pipe.unref();
  }

  /** The process to end; undefined: it ended by itself. */
  watch(pid: number | undefined): void {
    this.shell.stdin?.write(`${pid ?? 'none'}\n`);
  }

  /** Everything is tidied up. */
  farewell(): void {
    this.shell.stdin?.end('farewell\n');
  }
}
