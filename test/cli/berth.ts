import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const launcher = fileURLToPath(new URL('../../bin/berth', import.meta.url));

export interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export type Environment = Readonly<Record<string, string>>;

/** Not compiled anew in each home. */
const compiled = process.env.NODE_COMPILE_CACHE;

/** A home of its own, in which nobody has logged in, and nothing of the developer's own settings. */
export async function makeHome(): Promise<{
  env: Environment;
  home: string;
  remove(): Promise<void>;
}> {
  const home = await mkdtemp(join(tmpdir(), 'berth-cli-'));
  const env = {
    ...{ PATH: process.env.PATH ?? '', HOME: home, LANG: 'C.UTF-8' },
    ...(compiled && { NODE_COMPILE_CACHE: compiled }),
  };
  return { env, home, remove: () => rm(home, { recursive: true, force: true }) };
}

/** Runs a program to its end, with `input` on its standard input. */
export async function run(
  program: string,
  args: readonly string[],
  options: { env: Environment; input?: string | undefined },
): Promise<Result> {
  const child = spawn(program, args, { env: options.env });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  // A program that ends without reading is not what is tested here.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.input ?? '');
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, stdout, stderr };
}

/** Runs the real `bin/berth`. */
export const berth = (env: Environment, args: readonly string[], input?: string): Promise<Result> =>
  run(launcher, args, { env, input });

/** Runs a command that must go well, and must not show a private key unless asked to. */
export async function succeed(
  env: Environment,
  args: readonly string[],
  input?: string,
): Promise<Result> {
  const result = await berth(env, args, input);
  assert.equal(result.code, 0, `berth ${args.join(' ')}: ${result.stderr}`);
  if (!args.includes('--print')) {
    assert.doesNotMatch(result.stdout + result.stderr, /PRIVATE KEY/);
  }
  return result;
}

/** Runs a command that must fail in an expected way: with this exit code, a message and no stack trace. */
export async function fail(
  env: Environment,
  args: readonly string[],
  code: number,
  message = /./,
): Promise<Result> {
  const result = await berth(env, args);
  const line = `berth ${args.join(' ')}: ${result.stdout}${result.stderr}`;
  assert.equal(result.code, code, line);
  assert.match(result.stderr, message, line);
  assert.doesNotMatch(result.stderr, /\n\s+at |berth_[0-9a-f]{20}/, line);
  return result;
}
