/** Runs the host's own tools: argument arrays, an environment of their own, a deadline. */

import { spawn } from 'node:child_process';
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

/** Absolute path of a program, because sshd insists on one; undefined when the host does not have it. */
export function findTool(name: string): string | undefined {
  const preferred = ['/usr/sbin', '/usr/bin', ...TOOL_DIRECTORIES];
  return preferred.map((directory) => `${directory}/${name}`).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Runs a program to its end, and ends whatever it started and left behind. A failure to start, an exit code
 * and a deadline all show in the result.
 */
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
      // A process group of its own, so that one signal reaches all of it.
      detached: true,
      ...options.identity,
    });
    const stdout = collect(child.stdout);
    const stderr = collect(child.stderr);
    const timer = setTimeout(() => killGroup(child.pid), options.timeoutMs);
    child.once('error', (error) => {
      clearTimeout(timer);
      resolve({ code: null, stdout: '', stderr: error.message });
    });
    // A grandchild that lives on would hold the pipes open, and "close" would never come.
    child.once('exit', () => killGroup(child.pid));
    child.once('close', (code) => {
      clearTimeout(timer);
      resolve({ code, stdout: stdout(), stderr: stderr() });
    });
  });
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // Nobody of the group is left.
  }
}

function collect(stream: NodeJS.ReadableStream): () => string {
  let text = '';
  stream.on('data', (chunk: Buffer) => {
    if (text.length < OUTPUT_LIMIT_BYTES) text += chunk.toString('latin1');
  });
  return () => text.slice(0, OUTPUT_LIMIT_BYTES).trim();
}
