/** Installs packages of Debian and Ubuntu, as root or through sudo. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { delimiter } from 'node:path';

const searchPath = [
  ...(process.env.PATH ?? '').split(delimiter),
  '/usr/sbin',
  '/sbin',
  '/usr/bin',
  '/bin',
];

export const hasProgram = (name: string): boolean =>
  searchPath.some((folder) => existsSync(`${folder}/${name}`));

/** The words to put before a command that needs root; undefined when there is no way. */
export function privileges(): readonly string[] | undefined {
  if (process.getuid?.() === 0) return [];
  const ask = process.stdin.isTTY ? ['sudo'] : ['sudo', '-n'];
  return spawnSync(ask[0] ?? 'sudo', [...ask.slice(1), 'true'], { stdio: 'inherit' }).status === 0
    ? ask
    : undefined;
}

/** True when all of them are installed. The package lists are fetched when there are none, or they are too old. */
export function install(
  sudo: readonly string[],
  names: readonly string[],
  { freshLists = false, say }: { freshLists?: boolean; say?: (line: string) => void } = {},
): boolean {
  const command = [
    ...[...sudo, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', 'install', '-y', '-qq'],
    ...['--no-install-recommends', ...names],
  ];
  if (!freshLists && hasPackageLists() && run(command)) return true;
  run([...sudo, 'apt-get', 'update', '-qq'], say);
  return run(command, say);
}

function hasPackageLists(): boolean {
  const folder = '/var/lib/apt/lists';
  return existsSync(folder) && readdirSync(folder).some((name) => name.includes('_Packages'));
}

/** True when it ended well; else `say` hears the end of what it complained about. */
export function run(command: readonly string[], say: (line: string) => void = () => {}): boolean {
  const [file = '', ...args] = command;
  const { status, error, stderr } = spawnSync(file, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    encoding: 'utf8',
  });
  if (status === 0) return true;
  for (const line of (error?.message ?? stderr).trim().split('\n').slice(-5)) say(`  ${line}`);
  return false;
}
