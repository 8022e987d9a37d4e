import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { delimiter } from 'node:path';

/** A Debian or Ubuntu package, and a program by which it is known to be there. */
interface SystemPackage {
  readonly name: string;
  readonly program: string;
  readonly why: string;
}

const required: readonly SystemPackage[] = [
  { name: 'openssh-client', program: 'ssh', why: 'to log in' },
  { name: 'openssh-server', program: 'sshd', why: "the instances' SSH server" },
  { name: 'bubblewrap', program: 'bwrap', why: 'to keep instances apart' },
];
const optional: readonly SystemPackage[] = [
  { name: 'passt', program: 'pasta', why: 'gives instances a network of their own' },
];

const searchPath = [
  ...(process.env.PATH ?? '').split(delimiter),
  '/usr/sbin',
  '/sbin',
  '/usr/bin',
  '/bin',
];
const isThere = (item: SystemPackage) =>
  searchPath.some((folder) => existsSync(`${folder}/${item.program}`));

/**
 * Installs the system packages that are missing, as root or through sudo. False when that is not possible here;
 * then it has said exactly what to install.
 */
export function ensureSystemPackages(say: (line: string) => void): boolean {
  const missing = required.filter((item) => !isThere(item));
  const wished = optional.filter((item) => !isThere(item));
  if (missing.length === 0 && (wished.length === 0 || process.getuid?.() !== 0)) return true;
  const sudo = privileges();
  if (!sudo || !existsSync('/usr/bin/apt-get')) {
    if (missing.length > 0) explain(missing, say);
    return missing.length === 0;
  }
  if (missing.length > 0) {
    say(`Installing ${missing.map((item) => `${item.name} (${item.why})`).join(', ')} ...`);
    const hadNoSshd = missing.some((item) => item.name === 'openssh-server');
    if (hadNoSshd) keepSystemSshdOff(sudo);
    if (!install(sudo, missing)) return explain(missing, say);
    if (hadNoSshd) run([...sudo, 'update-rc.d', 'ssh', 'disable']);
  }
  if (wished.length > 0 && !install(sudo, wished))
    say(`${wished[0]?.name} is not to be had here; going on without it.`);
  return true;
}

function explain(missing: readonly SystemPackage[], say: (line: string) => void): false {
  const names = missing.map((item) => item.name).join(' ');
  say(`These system packages are missing: ${names}. Install them as root and run this again:`);
  say(`  apt-get install --no-install-recommends ${names}`);
  if (names.includes('openssh-server')) {
    say(
      'To keep the system from starting an SSH server of its own, first: touch /etc/ssh/sshd_not_to_be_run',
    );
  }
  return false;
}

/** The words to put before a command that needs root; undefined when there is no way. */
function privileges(): readonly string[] | undefined {
  if (process.getuid?.() === 0) return [];
  const ask = process.stdin.isTTY ? ['sudo'] : ['sudo', '-n'];
  return spawnSync(ask[0] ?? 'sudo', [...ask.slice(1), 'true'], { stdio: 'inherit' }).status === 0
    ? ask
    : undefined;
}

/** A machine that had no SSH server must not get one that listens: Debian's own switch for that (README.Debian). */
function keepSystemSshdOff(sudo: readonly string[]): void {
  const marker = '/etc/ssh/sshd_not_to_be_run';
  if (sudo.length > 0) {
    run([...sudo, 'mkdir', '-p', '/etc/ssh']);
    run([...sudo, 'touch', marker]);
    return;
  }
  mkdirSync('/etc/ssh', { recursive: true });
  if (!existsSync(marker)) writeFileSync(marker, '');
}

function install(sudo: readonly string[], items: readonly SystemPackage[]): boolean {
  const names = items.map((item) => item.name);
  const command = [
    'env',
    'DEBIAN_FRONTEND=noninteractive',
    'apt-get',
    'install',
    '-y',
    '-qq',
    '--no-install-recommends',
  ];
  if (hasPackageLists() && run([...sudo, ...command, ...names])) return true;
  run([...sudo, 'apt-get', 'update', '-qq']);
  return run([...sudo, ...command, ...names]);
}

function hasPackageLists(): boolean {
  const folder = '/var/lib/apt/lists';
  return existsSync(folder) && readdirSync(folder).some((name) => name.includes('_Packages'));
}

function run(command: readonly string[]): boolean {
  try {
    execFileSync(command[0] ?? '', command.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] });
    return true;
  } catch {
    return false;
  }
}
