/**
 * Ubuntu 24.04 and later take all rights from the user namespaces of an unprivileged program, unless a profile of
 * AppArmor is for it. The packages of bubblewrap and passt bring none that permits them, so this writes one each.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasProgram, privileges, run } from './apt.ts';

type Say = (line: string) => void;

const restriction = '/proc/sys/kernel/apparmor_restrict_unprivileged_userns';
const profiles = '/etc/apparmor.d';
/** Each with the other builds of itself that it starts. */
const programs: Readonly<Record<string, string>> = {
  bwrap: '/usr/bin/bwrap',
  pasta: '/usr/bin/pasta{,.avx2}',
};

/** As root or through sudo. Where it cannot be done, the service says what is missing, as on any other host. */
export function permitUserNamespaces(say: Say): void {
  if (!existsSync(restriction) || readFileSync(restriction, 'utf8').trim() !== '1') return;
  if (!hasProgram('apparmor_parser')) return;
  const names = withoutProfile(profiles).filter(hasProgram);
  const sudo = names.length === 0 ? undefined : privileges();
  if (sudo) for (const name of names) permit(name, sudo, say);
}

/** Those that no profile in the folder is about: what somebody has decided for a program stays. */
export function withoutProfile(folder: string): string[] {
  const entries = existsSync(folder) ? readdirSync(folder, { withFileTypes: true }) : [];
  const texts = entries
    .filter((entry) => entry.isFile())
    .map(({ name }) => readFileSync(join(folder, name), 'utf8').replaceAll(/^\s*#.*$/gm, ''));
  return Object.keys(programs).filter((name) => {
    const attached = new RegExp(`^[^\\n]*/${name}\\b[^\\n]*\\{\\s*$`, 'm');
    return !texts.some((text) => attached.test(text));
  });
}

/** In the form of the profiles that Ubuntu itself brings for browsers and the like. */
export const profileOf = (
  name: string,
): string => `# Made by Berth: what it starts as an ordinary user may make user namespaces.
abi <abi/4.0>,
include <tunables/global>

profile berth-${name} ${programs[name]} flags=(unconfined) {
  userns,
  include if exists <local/berth-${name}>
}
`;

function permit(name: string, sudo: readonly string[], say: Say): void {
  const target = join(profiles, `berth-${name}`);
  say(`Permitting ${name} to make user namespaces, by a profile of AppArmor: ${target}`);
  const folder = mkdtempSync(join(tmpdir(), 'berth-profile-'));
  try {
    const file = join(folder, 'profile');
    writeFileSync(file, profileOf(name));
    const written = run([...sudo, 'install', '-m', '0644', file, target], say);
    if (written) run([...sudo, 'apparmor_parser', '--replace', target], say);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
