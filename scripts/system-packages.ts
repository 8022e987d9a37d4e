import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { hasProgram, install, privileges, run } from './apt.ts';
import { permitUserNamespaces } from './user-namespaces.ts';

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

const isThere = (item: SystemPackage) => hasProgram(item.program);
const namesOf = (items: readonly SystemPackage[]) => items.map((item) => item.name);

/**
 * Installs the system packages that are missing, as root or through sudo, and lets them do their work. False when that
 * is not possible here; then it has said exactly what to install.
 */
export function ensureSystemPackages(say: (line: string) => void): boolean {
  const isComplete = ensurePackages(say);
  permitUserNamespaces(say);
  return isComplete;
}

function ensurePackages(say: (line: string) => void): boolean {
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
    if (!install(sudo, namesOf(missing))) return explain(missing, say);
    if (hadNoSshd) run([...sudo, 'update-rc.d', 'ssh', 'disable']);
  }
  if (wished.length > 0 && !install(sudo, namesOf(wished)))
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
