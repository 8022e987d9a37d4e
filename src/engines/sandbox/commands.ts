/** Runs the host's own tools: argument arrays, an environment of their own, a deadline. */

import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { type Progress, progressOf } from './processes.ts';

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
  /** End it when it does nothing for so long. */
  readonly stallMs?: number | undefined;
}

export interface CommandResult {
  /** Null when a signal ended it, a deadline among them. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** It was ended because it stood still. */
  readonly stalled: boolean;
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
const PROGRESS_INTERVAL_MS = 500;
/**
 * A second. Linux wakes a process that waits for a lease in each of its ticks: on a slow host that takes it as much as a
 * hundredth of the time.
 */
const TICKS_OF_WORK = 100;

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
    const watch = options.stallMs === undefined ? undefined : watchProgress(child, options.stallMs);
    child.once('error', (error) => {
      clearTimeout(timer);
      watch?.end();
      resolve({ code: null, stdout: '', stderr: error.message, stalled: false });
    });
    child.once('exit', (code) => {
      clearTimeout(timer);
      const stalled = watch?.end() ?? false;
      // "close" is not waited for alone: it does not come while a grandchild holds the pipes.
      const finish = (): void => resolve({ code, stdout: stdout(), stderr: stderr(), stalled });
      child.once('close', finish);
      setTimeout(finish, LATE_OUTPUT_MS).unref();
    });
  });
}

/** Ends a process that stands still; `end` ends the watch and says whether it came to that. */
function watchProgress(child: ChildProcess, stallMs: number): { end: () => boolean } {
  let last: Progress = { io: '', cpuTicks: 0 };
  let movedAt = performance.now();
  let stalled = false;
  const timer = setInterval(() => {
    const now = progressOf(child.pid ?? 0);
    if (now.io !== last.io || now.cpuTicks - last.cpuTicks >= TICKS_OF_WORK) {
      last = now;
      movedAt = performance.now();
    }
    if (stalled || performance.now() - movedAt < stallMs) return;
    stalled = true;
    killGroup(child);
  }, PROGRESS_INTERVAL_MS);
  return {
    end: () => {
      clearInterval(timer);
      return stalled;
    },
  };
}

/** Only while the child is there: once it was reaped, its number may be somebody else's. */
function killGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  process.kill(-child.pid, 'SIGKILL');
}

export function collect(stream: NodeJS.ReadableStream): () => string {
  let text = '';
  stream.on('data', (chunk: Buffer) => {
    if (text.length < OUTPUT_LIMIT_BYTES) text += chunk.toString('latin1');
  });
  return () => text.slice(0, OUTPUT_LIMIT_BYTES).trim();
}
