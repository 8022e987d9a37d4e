/** The system's own OpenSSH client, cut off from every configuration of the person who runs the tests. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Outcome, type RunOptions, run, runWell } from './run.ts';
import { eventually } from './waiting.ts';

const OPTIONS = [
  'BatchMode=yes',
  'IdentitiesOnly=yes',
  'IdentityAgent=none',
  'StrictHostKeyChecking=no',
  'UserKnownHostsFile=/dev/null',
  'GlobalKnownHostsFile=/dev/null',
  'ConnectTimeout=5',
  'LogLevel=ERROR',
];

export interface Login {
  readonly host: string;
  readonly port: number;
  readonly keyFile: string;
}

function common(login: Login): string[] {
  return ['-F', 'none', ...OPTIONS.flatMap((option) => ['-o', option]), '-i', login.keyFile];
}

function sshWords(login: Login): string[] {
  return [...common(login), '-p', String(login.port), `ubuntu@${login.host}`];
}

/** Runs a command in the instance. */
export function ssh(login: Login, command: string, options: RunOptions = {}): Promise<Outcome> {
  return run('ssh', [...sshWords(login), command], options);
}

/** Runs a command in the instance that has to succeed; its stdout. */
export function sshWell(login: Login, command: string, options: RunOptions = {}): Promise<string> {
  return runWell('ssh', [...sshWords(login), command], options);
}

/** Logs in, or says why not. */
export async function loginProblem(login: Login): Promise<string | undefined> {
  const outcome = await ssh(login, 'echo "in as $(id -un)"');
  if (outcome.code === 0 && outcome.stdout === 'in as ubuntu\n') return undefined;
  return `ssh ended with ${outcome.code}: ${outcome.stdout}${outcome.stderr}`;
}

/** True when sshd answers and refuses the key; a connection that fails otherwise is an error. */
export async function isDenied(login: Login): Promise<boolean> {
  const outcome = await ssh(login, 'true');
  if (outcome.code === 0) return false;
  if (outcome.stderr.includes('Permission denied')) return true;
  throw new Error(`ssh ended with ${outcome.code}: ${outcome.stderr}`);
}

/** Runs sftp with these batch commands. */
export function sftp(login: Login, commands: string): Promise<string> {
  const words = ['-b', '-', ...common(login), '-P', String(login.port), `ubuntu@${login.host}`];
  return runWell('sftp', words, { input: commands });
}

/** Copies a local file into the instance. `-O` asks for the old protocol, which runs scp in the instance. */
export function scp(login: Login, from: string, to: string, legacy: boolean): Promise<string> {
  const target = `ubuntu@${login.host}:${to}`;
  const words = [...common(login), '-P', String(login.port), from, target];
  return runWell('scp', legacy ? ['-O', ...words] : words);
}

/** The host keys an instance shows, without addresses, in a stable order. */
export async function hostKeys(login: Login): Promise<string[]> {
  const found = await runWell('ssh-keyscan', ['-p', String(login.port), login.host]);
  return found
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.slice(line.indexOf(' ') + 1))
    .sort();
}

/** A session that stays open, so that the guest can work on after it broke its own authorized_keys. */
export class OpenSession {
  private readonly socket: string;
  private readonly master: ChildProcess;

  private constructor(socket: string, master: ChildProcess) {
    this.socket = socket;
    this.master = master;
  }

  static async open(login: Login, socket: string): Promise<OpenSession> {
    const words = ['-M', '-N', '-S', socket, ...sshWords(login)];
    const session = new OpenSession(socket, spawn('ssh', words, { stdio: 'ignore' }));
    await eventually('an open session', 10_000, async () => {
      const state = await run('ssh', ['-F', 'none', '-S', socket, '-O', 'check', 'instance']);
      return state.code === 0 ? true : undefined;
    });
    return session;
  }

  /** Runs a shell command over the open session; it has to succeed. */
  do(command: string, options: RunOptions = {}): Promise<string> {
    return runWell('ssh', ['-F', 'none', '-S', this.socket, 'instance', command], options);
  }

  async close(): Promise<void> {
    if (this.master.exitCode !== null || this.master.signalCode !== null) return;
    const ended = once(this.master, 'exit');
    // SIGTERM is lost when it arrives just before the master waits for input.
    this.master.kill('SIGKILL');
    await ended;
  }
}
