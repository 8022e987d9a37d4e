/** Finds out what this host has and permits, once, when the engine opens. */

import { existsSync, readFileSync } from 'node:fs';
import { type EngineCapabilities, EngineError } from '../engine.ts';
import type { Limits } from './cgroups.ts';
import { findTool, type Identity, runCommand } from './commands.ts';
import { BASE_TEMPLATE } from './disk.ts';
import type { DiskQuotas } from './disk-quotas.ts';
import { isolated } from './isolation.ts';
import type { Users } from './layout.ts';
import type { SandboxOptions } from './options.ts';
import { pastaArguments } from './own-network.ts';
import { canDialInto } from './own-network-dialer.ts';

type HostOptions = Pick<
  SandboxOptions,
  'sandboxUser' | 'network' | 'listenAddress' | 'allowUnconfinedShells' | 'forceUnconfined'
>;

/** Absolute paths; undefined: the host does not have it. */
export interface Tools {
  readonly bwrap: string | undefined;
  readonly sshd: string | undefined;
  readonly sshKeygen: string | undefined;
  readonly unshare: string | undefined;
  readonly setpriv: string | undefined;
  readonly pasta: string | undefined;
  readonly nsenter: string | undefined;
  readonly nssWrapper: string | undefined;
  readonly btrfs: string | undefined;
}

export interface Host {
  readonly tools: Tools;
  readonly users: Users;
  /** Options that older releases of bubblewrap do not know. */
  readonly bwrapOptions: ReadonlySet<string>;
  /** Instances run in namespaces of their own. */
  readonly isolation: boolean;
  /** The tools that walk through a guest's files may do so in a user namespace, past its file modes. */
  readonly pastFileModes: boolean;
  readonly ownNetwork: boolean;
  /** Penalties for failed logins came with OpenSSH 9.8; behind one address they would punish everyone. */
  readonly sshdHasPenalties: boolean;
  readonly notices: readonly string[];
}

const PROBE_TIMEOUT_MS = 10_000;
const NEWER_BWRAP_OPTIONS = ['--disable-userns', '--size', '--perms'];

export async function probeHost(options: HostOptions): Promise<Host> {
  const tools = findTools();
  const users = await findUsers(options.sandboxUser);
  const bwrapOptions = await probeBwrapOptions(tools);
  const isolationProblem =
    options.forceUnconfined === true
      ? 'Namespaces are switched off by a setting.'
      : await probeIsolation(tools, users, bwrapOptions);
  const isolation = isolationProblem === undefined;
  const ownNetwork =
    isolation && options.network === 'auto' && (await probeOwnNetwork(tools, users, options));
  return {
    tools,
    users,
    bwrapOptions,
    isolation,
    pastFileModes: options.forceUnconfined !== true && (await probeUnshare(tools, users)),
    ownNetwork,
    sshdHasPenalties: await probePenalties(tools),
    notices: [
      ...toolNotices(tools),
      ...(isolationProblem === undefined
        ? []
        : unconfinedNotices(isolationProblem, options, tools)),
      ...(isolation && !ownNetwork ? [networkNotice(options, tools)] : []),
      ...(ownNetwork && !canDialInto(tools)
        ? ['Ports cannot be published: nsenter or setpriv is missing. apt-get install util-linux']
        : []),
    ],
  };
}

export function capabilitiesOf(
  host: Host,
  options: HostOptions,
  limits: Pick<Limits, 'holds'>,
  quotas: Pick<DiskQuotas, 'holds'>,
): EngineCapabilities {
  return {
    snapshotPauses: host.isolation,
    enforcesCpu: limits.holds('cpu'),
    enforcesMemory: limits.holds('memory'),
    enforcesDiskSize: quotas.holds,
    ownNetwork: host.ownNetwork,
    publishesPorts: !host.ownNetwork || canDialInto(host.tools),
    shells: host.isolation || options.allowUnconfinedShells,
    attaches: [],
    templates: [BASE_TEMPLATE],
    virtualMachines: [],
    hosts: [],
  };
}

function findTools(): Tools {
  return {
    bwrap: findTool('bwrap'),
    sshd: findTool('sshd'),
    sshKeygen: findTool('ssh-keygen'),
    unshare: findTool('unshare'),
    setpriv: findTool('setpriv'),
    pasta: findTool('pasta'),
    nsenter: findTool('nsenter'),
    nssWrapper: findNssWrapper(),
    btrfs: findTool('btrfs'),
  };
}

function findNssWrapper(): string | undefined {
  const folders = [
    '/usr/lib',
    '/usr/lib64',
    '/usr/lib/x86_64-linux-gnu',
    '/usr/lib/aarch64-linux-gnu',
  ];
  return folders.map((folder) => `${folder}/libnss_wrapper.so`).find((path) => existsSync(path));
}

/** Guests of a service that is root run as a system user made for this; else as the service's own user. */
async function findUsers(name: string): Promise<Users> {
  const own = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  if (own.uid !== 0) return { guest: own, dropTo: undefined };
  const guest = lookUpUser(name) ?? (await addUser(name));
  if (guest.uid === 0)
    throw new EngineError(
      'unavailable',
      'Instances may not run as root. Choose another sandbox user.',
    );
  return { guest, dropTo: guest };
}

function lookUpUser(name: string): Identity | undefined {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((entry) => entry.startsWith(`${name}:`));
  if (line === undefined) return undefined;
  const [, , uid, gid] = line.split(':');
  return { uid: Number(uid), gid: Number(gid) };
}

async function addUser(name: string): Promise<Identity> {
  const useradd = findTool('useradd');
  const args = ['--system', '--user-group', '--no-create-home', '--home-dir', '/nonexistent'];
  const result =
    useradd === undefined
      ? undefined
      : await runCommand(useradd, [...args, '--shell', '/usr/sbin/nologin', name], {
          timeoutMs: 20_000,
        });
  const added = lookUpUser(name);
  if (added !== undefined) return added;
  throw new EngineError(
    'unavailable',
    `The system user "${name}", as whom instances run, could not be made. Add it with: useradd --system ${name}`,
    { detail: result?.stderr ?? 'useradd is missing' },
  );
}

async function probeBwrapOptions(tools: Tools): Promise<Set<string>> {
  if (tools.bwrap === undefined) return new Set();
  const { stdout, stderr } = await runCommand(tools.bwrap, ['--help'], {
    timeoutMs: PROBE_TIMEOUT_MS,
  });
  return new Set(
    NEWER_BWRAP_OPTIONS.filter((option) => `${stdout}${stderr}`.includes(`${option} `)),
  );
}

/** Undefined when a sandbox can be made; else what stood in the way. */
async function probeIsolation(
  tools: Tools,
  users: Users,
  bwrapOptions: ReadonlySet<string>,
): Promise<string | undefined> {
  if (tools.bwrap === undefined) return 'The program bwrap is missing.';
  const { bwrap, setpriv } = tools;
  const options = { bwrap, setpriv, bwrapOptions, hostname: 'probe' };
  const [file = bwrap, ...args] = isolated(options, ['/usr/bin/true']);
  const result = await runCommand(file, args, {
    identity: users.dropTo,
    timeoutMs: PROBE_TIMEOUT_MS,
  });
  return result.code === 0 ? undefined : result.stderr || 'bwrap gave no reason.';
}

async function probeUnshare(tools: Tools, users: Users): Promise<boolean> {
  if (tools.unshare === undefined) return false;
  const args = ['--user', '--map-root-user', '--', '/bin/true'];
  const options = { identity: users.dropTo, timeoutMs: PROBE_TIMEOUT_MS };
  return (await runCommand(tools.unshare, args, options)).code === 0;
}

/** The old releases of passt lack options; whatever fails, the host's network is shared. */
async function probeOwnNetwork(tools: Tools, users: Users, options: HostOptions): Promise<boolean> {
  if (tools.pasta === undefined || !(await canOpenTun(users))) return false;
  const args = [
    ...pastaArguments({ ip: options.listenAddress, port: undefined }),
    '--',
    '/bin/true',
  ];
  const result = await runCommand(tools.pasta, args, {
    identity: users.dropTo,
    timeoutMs: PROBE_TIMEOUT_MS,
  });
  return result.code === 0;
}

/** Asked first, because the old releases of passt hang when they cannot open it. */
async function canOpenTun({ dropTo }: Users): Promise<boolean> {
  const args = ['-c', ': <>/dev/net/tun'];
  const options = { identity: dropTo, timeoutMs: PROBE_TIMEOUT_MS };
  return (await runCommand('/bin/sh', args, options)).code === 0;
}

async function probePenalties(tools: Tools): Promise<boolean> {
  if (tools.sshd === undefined) return false;
  // Releases without -V print their version with the complaint about it.
  const { stdout, stderr } = await runCommand(tools.sshd, ['-V'], { timeoutMs: PROBE_TIMEOUT_MS });
  const version = /OpenSSH_(\d+)\.(\d+)/.exec(`${stdout}${stderr}`);
  const [major, minor] = [Number(version?.[1]), Number(version?.[2])];
  return major > 9 || (major === 9 && minor >= 8);
}

function toolNotices(tools: Tools): string[] {
  const packages: [string | undefined, string][] = [
    [tools.bwrap, 'bubblewrap'],
    [tools.sshd, 'openssh-server'],
    [tools.sshKeygen, 'openssh-client'],
  ];
  const missing = packages.filter(([path]) => path === undefined).map(([, name]) => name);
  if (missing.length === 0) return [];
  return [
    `Missing on this host: ${missing.join(', ')}. Install with: apt-get install ${missing.join(' ')}`,
  ];
}

function unconfinedNotices(problem: string, options: HostOptions, tools: Tools): string[] {
  const shells = options.allowUnconfinedShells
    ? 'Shells run WITHOUT isolation, because the operator asked for it: whoever logs in acts as the user of all instances.'
    : 'Keys can be added and logins are accepted, but shells are refused.';
  const login =
    tools.nssWrapper === undefined && lookUpUser('ubuntu')?.uid !== process.getuid?.()
      ? [
          'Without namespaces the login name "ubuntu" needs the package libnss-wrapper. Until it is there, logins fail: apt-get install libnss-wrapper',
        ]
      : [];
  return [`This host does not permit sandboxes (${problem}). ${shells} ${permitHint()}`, ...login];
}

/** How to permit user namespaces, as far as the host shows what forbids them. */
function permitHint(): string {
  const forbidden = (path: string, value: string): boolean =>
    existsSync(path) && readFileSync(path, 'utf8').trim() === value;
  if (forbidden('/proc/sys/kernel/unprivileged_userns_clone', '0')) {
    return 'To permit them: sysctl -w kernel.unprivileged_userns_clone=1';
  }
  if (forbidden('/proc/sys/user/max_user_namespaces', '0')) {
    return 'To permit them: sysctl -w user.max_user_namespaces=15000';
  }
  if (forbidden('/proc/sys/kernel/apparmor_restrict_unprivileged_userns', '1')) {
    return 'To permit them: npm run quickstart as root, which writes AppArmor profiles for bwrap and pasta; or for all programs: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0';
  }
  if (existsSync('/.dockerenv') || existsSync('/run/.containerenv')) {
    return 'In a container, permit them with: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined --cap-add SYS_ADMIN (or --privileged).';
  }
  return 'Unprivileged user namespaces have to be permitted by the kernel of this host.';
}

function networkNotice(options: HostOptions, tools: Tools): string {
  const shared =
    "Instances share the host's network: they can reach services on its loopback addresses.";
  if (options.network === 'host') return `${shared} The setting asks for it.`;
  if (tools.pasta === undefined) {
    return `${shared} For a network of their own: apt-get install passt`;
  }
  return `${shared} For a network of their own, the user they run as needs /dev/net/tun: modprobe tun; chmod 0666 /dev/net/tun`;
}
