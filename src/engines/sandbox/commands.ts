/** Runs the host's own tools: argument arrays, an environment of their own, a deadline. */

import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';

/** A user of the host, by number. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
}

export interface CommandOptions {
  /** Run as this user; absent: as the service's own. */
  readonly identity?: Identity | undefined;
  readonly directory?: string;
  readonly timeoutMs: number;
}

export interface CommandResult {
  /** Null when a signal ended it, a deadline among them. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The service's own environment holds its secrets, so nothing that is started here gets it. */
export const CLEAN_ENVIRONMENT = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/',
  LC_ALL: 'C',
};

const TOOL_DIRECTORIES = CLEAN_ENVIRONMENT.PATH.split(':').map((path) => path.replace(/\/$/, ''));
const OUTPUT_LIMIT_BYTES = 16_384;
const LATE_OUTPUT_MS = 500;

/** Absolute path of a program, because sshd insists on one; undefined when the host does not have it. */
export function findTool(name: string): string | undefined {
  const preferred = ['/usr/sbin', '/usr/bin', ...TOOL_DIRECTORIES];
  return preferred.map((directory) => `${directory}/${name}`).find(isExecutable);
}

/** Put before a command, makes it end with the process that starts it. */
export function dyingWithParent({ setpriv }: { setpriv: string | undefined }): string[] {
  return setpriv === undefined ? [] : [setpriv, '--pdeathsig', 'KILL', '--'];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Runs a program to its end. A failure to start, an exit code and a deadline all show in the result. */
export function runCommand(
  file: string,
  args: readonly string[],
  options: CommandOptions,
): Promise<CommandResult> {
  return new Promise((resolve) => {
    const child = spawn(file, args, {
      cwd: options.directory ?? '/',
      env: CLEAN_ENVIRONMENT,
      stdio: ['ignore', 'pipe', 'pipe'],
      // A process group of its own, so that the deadline reaches whatever it starts.
      detached: true,
      ...options.identity,
    });
    const stdout = collect(child.stdout);
    const stderr = collect(child.stderr);
    const timer = setTimeout(() => killGroup(child), options.timeoutMs);
    child.once('error', (error) => {
      clearTimeout(timer);
      resolve({ code: null, stdout: '', stderr: error.message });
    });
    child.once('exit', (code) => {
      clearTimeout(timer);
      // "close" is not waited for alone: it does not come while a grandchild holds the pipes.
      const finish = (): void => resolve({ code, stdout: stdout(), stderr: stderr() });
      child.once('close', finish);
      setTimeout(finish, LATE_OUTPUT_MS).unref();
    });
  });
}

/** Only while the child is there: once it was reaped, its number may be somebody else's. */
function killGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  process.kill(-child.pid, 'SIGKILL');
}

function collect(stream: NodeJS.ReadableStream): () => string {
  let text = '';
  stream.on('data', (chunk: Buffer) => {
    if (text.length < OUTPUT_LIMIT_BYTES) text += chunk.toString('latin1');
  });
  return () => text.slice(0, OUTPUT_LIMIT_BYTES).trim();
}
