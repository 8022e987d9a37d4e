/** What the host's process table says about the sandboxes of one data folder. Linux only; all synchronous. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface HostProcess {
  readonly pid: number;
  readonly command: string;
  /** The mounts the process sees, as /proc/<pid>/mountinfo prints them. */
  readonly mounts: string;
  readonly pidNamespace: string;
  readonly state: string;
}

function attempt<T>(read: () => T, fallback: T): T {
  try {
    return read();
  } catch {
    return fallback;
  }
}

function readProcess(pid: number): HostProcess {
  const folder = `/proc/${pid}`;
  const stat = attempt(() => readFileSync(`${folder}/stat`, 'utf8'), '');
  return {
    pid,
    command: attempt(() => readFileSync(`${folder}/cmdline`, 'utf8').replaceAll('\0', ' '), ''),
    mounts: attempt(() => readFileSync(`${folder}/mountinfo`, 'utf8'), ''),
    pidNamespace: attempt(() => readlinkSync(`${folder}/ns/pid`), ''),
    state: stat.slice(stat.lastIndexOf(')') + 2).charAt(0),
  };
}

/** Every process but this one and zombies. */
export function allProcesses(): HostProcess[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .filter((found) => found.pid !== process.pid && found.state !== 'Z' && found.state !== '');
}

/** Processes that run inside, or hold up, a sandbox whose disk lies under this data folder. */
export function sandboxProcesses(dataFolder: string): HostProcess[] {
  const marker = `${dataFolder}/sandbox/`;
  return allProcesses().filter(
    (found) => found.command.includes(marker) || found.mounts.includes(marker),
  );
}

function references(found: HostProcess, dataFolder: string): string[] {
  const marker = `${dataFolder}/sandbox/instances/`;
  return `${found.command}\n${found.mounts}`
    .split(marker)
    .slice(1)
    .map((rest) => /^[A-Za-z0-9-]*/.exec(rest)?.[0] ?? '');
}

/** Engine reference -> the pid namespaces that live for it; a doubled instance has two. */
export function livingSandboxes(dataFolder: string): Map<string, Set<string>> {
  const own = attempt(() => readlinkSync('/proc/self/ns/pid'), '');
  const living = new Map<string, Set<string>>();
  const all = sandboxProcesses(dataFolder);
  // pasta has made another namespace, around what stands around the instance.
  const around = all.filter(({ command }) => /^\S*(?:pasta|bwrap) /.test(command));
  const outer = new Set([own, ...around.map((found) => found.pidNamespace)]);
  for (const found of all) {
    for (const reference of references(found, dataFolder)) {
      const namespaces = living.get(reference) ?? new Set<string>();
      if (!outer.has(found.pidNamespace)) namespaces.add(found.pidNamespace);
      living.set(reference, namespaces);
    }
  }
  return living;
}

/** Ends every sandbox of a data folder this test made. Killing one process may end the next before its turn. */
export function endSandboxes(dataFolder: string): void {
  for (const { pid } of sandboxProcesses(dataFolder)) endProcess(pid);
}

/** One that has ended already is no error. */
export function endProcess(pid: number): void {
  attempt(() => process.kill(pid, 'SIGKILL'), false);
}

/** Living helpers of a service in the networks of its instances: children that run its own program by a descriptor. */
export function networkHelpersOf(parentPid: number): HostProcess[] {
  return allProcesses().filter(({ pid, command }) => {
    const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, 'utf8'), '');
    const [, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(parent) === parentPid && /^\/proc\/self\/fd\/|^\S*nsenter /.test(command);
  });
}
