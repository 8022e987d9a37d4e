/** Runs the programs that build an image: argument arrays, in a folder, line by line. */

import { spawn } from 'node:child_process';
import { accessSync, constants, createReadStream } from 'node:fs';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { EngineError } from '../engine.ts';

const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** What it needs of the host: programs, and the package each comes with. */
const tools: Readonly<Record<string, string>> = {
  mmdebstrap: 'mmdebstrap',
  sqfstar: 'squashfs-tools',
  tar: 'tar',
};

/** Packages to install before an image can be built here. */
export function missingPackages(): string[] {
  return Object.entries(tools)
    .filter(
      ([program]) => !path.split(delimiter).some((folder) => isProgram(join(folder, program))),
    )
    .map(([, name]) => name);
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

interface RunOptions {
  readonly folder: string;
  /** A file of the folder that it reads. */
  readonly input?: string;
  /** Where it puts what it needs for itself; undefined: where everybody does. */
  readonly temporary?: string;
  /** What it mounts, nobody else sees: of a program that is killed no mount stays, only plain folders. */
  readonly ownMounts?: boolean;
  readonly onLine?: (line: string) => void;
}

const keptLines = 15;

/** Runs a program to its end; whatever it says goes to `onLine`, and the last of it into the error. */
export async function runTool(
  program: string,
  words: readonly string[],
  { folder, input, temporary, ownMounts = false, onLine = () => undefined }: RunOptions,
): Promise<string> {
  // The service's own environment holds secrets; a proxy for the packages is wanted, and where to put large files.
  const passed = ['http_proxy', 'https_proxy', 'no_proxy', 'TMPDIR'].flatMap((name) =>
    process.env[name] === undefined ? [] : [[name, process.env[name]]],
  );
  const env = {
    ...{ PATH: path, HOME: '/root', LC_ALL: 'C.UTF-8', ...Object.fromEntries(passed) },
    ...(temporary !== undefined && { TMPDIR: temporary }),
  };
  const [file, args] = ownMounts
    ? ['unshare', ['--mount', '--', program, ...words]]
    : [program, words];
  const child = spawn(file, args, { cwd: folder, env, stdio: ['pipe', 'pipe', 'pipe'] });
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) => resolve(code === 0 ? '' : `ended by ${signal ?? code}`));
  });
  child.stdin.on('error', () => undefined);
  if (input === undefined) child.stdin.end();
  else createReadStream(join(folder, input)).pipe(child.stdin);
  let stdout = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString('utf8');
  });
  const last: string[] = [];
  createInterface(child.stderr).on('line', (line) => {
    last.push(line);
    if (last.length > keptLines) last.shift();
    onLine(line);
  });
  const problem = await ended;
  if (problem === '') return stdout;
  throw new EngineError(
    'failed',
    `The image could not be built. ${program} said:\n${said(last, problem)}`,
  );
}

const said = (lines: readonly string[], problem: string): string =>
  [...lines, problem].map((line) => `  ${line}`).join('\n');
