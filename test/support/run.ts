import { spawn } from 'node:child_process';

export interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string | Buffer;
  readonly timeoutMs?: number;
}

/** Runs a program to its end. It never throws for an exit code; a timeout shows as code null. */
export function run(
  program: string,
  words: readonly string[],
  options: RunOptions = {},
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'pipe'] });
    const timer = setTimeout(() => child.kill('SIGKILL'), options.timeoutMs ?? 20_000);
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    child.stdin.on('error', () => undefined);
    child.once('error', reject);
    child.once('close', (code) => {
      clearTimeout(timer);
      const text = (chunks: Buffer[]): string => Buffer.concat(chunks).toString('utf8');
      resolve({ code, stdout: text(stdout), stderr: text(stderr) });
    });
    child.stdin.end(options.input);
  });
}

/** Runs a program that has to succeed; its stdout. */
export async function runWell(
  program: string,
  words: readonly string[],
  options: RunOptions = {},
): Promise<string> {
  const outcome = await run(program, words, options);
  if (outcome.code === 0) return outcome.stdout;
  throw new Error(`${program} ${words.join(' ')} ended with ${outcome.code}: ${outcome.stderr}`);
}
