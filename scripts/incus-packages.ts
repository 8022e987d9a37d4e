/** Installs Incus and what it needs for Berth on Debian 12 and later and Ubuntu 24.04 and later. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { release } from 'node:os';
import { hasProgram, install } from './apt.ts';
import { findDaemon, hasSystemd } from './incus-daemon.ts';

type Say = (line: string) => void;

interface System {
  readonly id: 'debian' | 'ubuntu';
  readonly version: number;
  readonly codename: string;
  readonly prettyName: string;
}

/** By which one sees that a package is there. What Incus only recommends is named, too: without it there is no bridge. */
const programs: readonly (readonly [program: string, packageName: string])[] = [
  ['incus', 'incus-client'],
  ['lxcfs', 'lxcfs'],
  ['dnsmasq', 'dnsmasq-base'],
  ['nft', 'nftables'],
  ['ip', 'iproute2'],
  ['btrfs', 'btrfs-progs'],
  ['setfattr', 'attr'],
  ['newuidmap', 'uidmap'],
  ['mksquashfs', 'squashfs-tools'],
  ['mmdebstrap', 'mmdebstrap'],
  ['zstd', 'zstd'],
  ['ssh', 'openssh-client'],
  // Else apt would install all of systemd for it.
  ['systemd-sysusers', 'systemd-standalone-sysusers'],
];
const backportsFile = '/etc/apt/sources.list.d/berth-backports.sources';
const policyFile = '/usr/sbin/policy-rc.d';
/** Simple quotas: without both, disks have no limits. */
const quotasNeed = { kernel: '6.7', tools: '6.6' };

/**
 * False when Incus is missing and cannot be installed here; then it has said what to do. Asks apt for nothing when
 * all is there.
 */
export function ensureIncusPackages(say: Say): boolean {
  const system = readSystem();
  const missing = missingPackages(system);
  if (missing.length === 0) return true;
  if (!system) return explainOther(missing, say);
  if (process.getuid?.() !== 0) return explainRoot(system, missing, say);
  const freshLists = addBackports(system, say);
  say(`Installing ${missing.join(', ')} (a minute or two) ...`);
  const installed = withoutStarting(() =>
    install([], namesFor(system, missing), { freshLists, say }),
  );
  return installed || missingPackages(system, 'needed').length === 0 || explainFailure(system, say);
}

/** Undefined on a system that is not one of ours. */
function readSystem(): System | undefined {
  const path = '/etc/os-release';
  const text = existsSync(path) && existsSync('/usr/bin/apt-get') ? readFileSync(path, 'utf8') : '';
  const value = (name: string) => new RegExp(`^${name}="?([^"\n]*)"?$`, 'm').exec(text)?.[1] ?? '';
  const id = value('ID');
  const version = Number(value('VERSION_ID'));
  const isOurs = (id === 'debian' && version >= 12) || (id === 'ubuntu' && version >= 24.04);
  if (!isOurs) return undefined;
  const [codename, prettyName] = [value('VERSION_CODENAME'), value('PRETTY_NAME')];
  return { id: id === 'debian' ? 'debian' : 'ubuntu', version, codename, prettyName };
}

function missingPackages(system: System | undefined, which: 'all' | 'needed' = 'all'): string[] {
  const names = programs.filter(([program]) => !hasProgram(program)).map(([, name]) => name);
  if (findDaemon() === undefined) names.unshift(system?.id === 'ubuntu' ? 'incus' : 'incus-base');
  const isOld = which === 'all' && system?.version === 12 && hasOldTools();
  return isOld && !names.includes('btrfs-progs') ? [...names, 'btrfs-progs'] : names;
}

/** The tools of Debian 12 are too old for simple quotas, those in its backports are not. */
function hasOldTools(): boolean {
  const { stdout } = spawnSync('btrfs', ['--version'], { encoding: 'utf8' });
  const tools = /v(\d+\.\d+)/.exec(stdout ?? '')?.[1];
  if (tools === undefined || isBefore(release(), quotasNeed.kernel)) return false;
  return isBefore(tools, quotasNeed.tools);
}

/** By numbers: 6.14 comes after 6.7. */
function isBefore(one: string, other: string): boolean {
  const [a = 0, b = 0] = one.split(/[.-]/).map(Number);
  const [c = 0, d = 0] = other.split('.').map(Number);
  return a < c || (a === c && b < d);
}

const namesFor = ({ codename, version, id }: System, names: readonly string[]): string[] =>
  names.map((name) =>
    id === 'debian' && version === 12 && name === 'btrfs-progs'
      ? `${name}/${codename}-backports`
      : name,
  );

/** Debian 12 has Incus in its backports only. True when a source was added, so that the lists have to be fetched. */
function addBackports(system: System, say: Say): boolean {
  if (system.id !== 'debian' || system.version !== 12) return false;
  const { stdout } = spawnSync(
    'apt-get',
    ['indextargets', '--format', '$(REPO_URI) $(CODENAME)', 'Created-By: Packages'],
    { encoding: 'utf8' },
  );
  const sources = (stdout ?? '').split('\n').map((line) => line.split(' '));
  if (sources.some(([, codename]) => codename === `${system.codename}-backports`)) return false;
  if (existsSync(backportsFile)) return false;
  const mirror = sources.find(([, codename]) => codename === system.codename)?.[0];
  say(`Adding ${system.codename}-backports to the package sources: ${backportsFile}`);
  writeFileSync(backportsFile, backportsSource(system, mirror));
  return true;
}

const backportsSource = ({ codename }: System, mirror = 'http://deb.debian.org/debian'): string =>
  `# For Incus, which this release of Debian has in its backports only. Nothing else is taken from there unasked.
Types: deb
URIs: ${mirror}
Suites: ${codename}-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`;

/**
 * Without systemd the packages would start their daemons by scripts that nobody minds, in an order of their own;
 * `ensureIncusDaemon` does that. Debian's own switch for it is a policy-rc.d.
 */
function withoutStarting<T>(work: () => T): T {
  if (hasSystemd() || existsSync(policyFile)) return work();
  writeFileSync(policyFile, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    return work();
  } finally {
    rmSync(policyFile, { force: true });
  }
}

function explainRoot(system: System, missing: readonly string[], say: Say): false {
  say(
    `These system packages are missing: ${missing.join(' ')}. Run this again as root, or as root:`,
  );
  if (system.version === 12 && system.id === 'debian')
    say(
      `  echo 'deb http://deb.debian.org/debian ${system.codename}-backports main' >/etc/apt/sources.list.d/backports.list; apt-get update`,
    );
  say(`  apt-get install --no-install-recommends ${namesFor(system, missing).join(' ')}`);
  return false;
}

function explainOther(missing: readonly string[], say: Say): false {
  say('Incus is installed here by itself on Debian 12 and later and on Ubuntu 24.04 and later.');
  say(`Elsewhere install Incus 6.0 or later and what Debian calls: ${missing.join(' ')}`);
  return false;
}

function explainFailure(system: System, say: Say): false {
  say(`The packages could not be installed on ${system.prettyName}; the reason stands above.`);
  if (system.id === 'ubuntu')
    say(
      'Incus is in "universe". Should that be off, add it to "Components:" in /etc/apt/sources.list.d/ubuntu.sources and run this again.',
    );
  return false;
}
