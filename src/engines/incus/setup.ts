/**
 * What an Incus that runs on this machine needs before the first instance: a storage pool and a network. Both are made
 * once; what is there under that name is used as it is, after a look whether it will do.
 */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { IncusClient } from './client.ts';
import { isIncusError } from './incus-error.ts';
import { enableSimpleQuotas, type Quotas, quotasKey, quotasOf } from './pool-quotas.ts';
import {
  bitsFor,
  chooseSubnet,
  formatAddress,
  holds,
  parseSubnet,
  type Subnet,
  sizeOf,
} from './subnets.ts';

const run = promisify(execFile);

export interface PoolFacts {
  readonly name: string;
  readonly driver: string;
  readonly status: string;
  readonly config: Readonly<Record<string, string>>;
  readonly used_by: readonly string[] | null;
}

export interface NetworkFacts {
  readonly name: string;
  readonly type: string;
  readonly managed: boolean;
  readonly config: Readonly<Record<string, string>>;
}

export interface SetupOptions {
  readonly client: IncusClient;
  /** The state folder of that Incus, on this machine. */
  readonly incusDir: string;
  readonly pool: string;
  /** Of the pool's file; undefined: half of what is free there, at most 100. */
  readonly poolSizeGib?: number | undefined;
  readonly network: string;
  readonly sshPorts: { readonly from: number; readonly to: number };
  readonly say: (line: string) => void;
}

const poolSize = { smallestGib: 5, largestGib: 100 };
const gib = 2 ** 30;
/** The kernel allows names of interfaces that are no longer. */
const longestName = 15;
/** Given by DHCP to what somebody else puts on the bridge: the end of the network, where no instance of ours is. */
const dhcpAddresses = 64;

export const countPorts = ({ from, to }: SetupOptions['sshPorts']): number => to - from + 1;

/** Undefined where there is none of that name. */
export async function find<T>(client: IncusClient, path: string): Promise<T | undefined> {
  try {
    return await client.get<T>(path);
  } catch (error) {
    if (isIncusError(error, 'not_found')) return undefined;
    throw error;
  }
}

export const poolPath = (name: string): string => `/1.0/storage-pools/${encodeURIComponent(name)}`;
export const networkPath = (name: string): string => `/1.0/networks/${encodeURIComponent(name)}`;

/** A btrfs pool in a file, with simple quotas where kernel and tools have them. */
export async function ensurePool(options: SetupOptions): Promise<Quotas> {
  const { client, pool: name } = options;
  const known = await find<PoolFacts>(client, poolPath(name));
  if (known) return checkPool(options, known);
  const size = options.poolSizeGib ?? (await fittingSize(options.incusDir));
  options.say(`Making the storage pool "${name}": btrfs in a file of at most ${size} GiB ...`);
  const body = { name, driver: 'btrfs', config: { size: `${size}GiB` } };
  await client.change('POST', '/1.0/storage-pools', body, { timeoutMs: 120_000 });
  return turnOnQuotas(options);
}

async function checkPool(options: SetupOptions, pool: PoolFacts): Promise<Quotas> {
  if (pool.driver === 'dir')
    throw new Error(
      `The storage pool "${pool.name}" has the driver "dir", which knows no limits and copies whole disks. Name another one with BERTH_INCUS_POOL.`,
    );
  if (pool.driver !== 'btrfs') return 'unknown';
  const quotas = quotasOf(mountPoint(options));
  // Disks that were made before are not counted: only an unused pool can still be turned.
  const isUnused = (pool.used_by ?? []).length === 0;
  if (quotas !== 'simple' && isUnused) return turnOnQuotas(options);
  if (quotas !== 'unknown' && quotas !== pool.config[quotasKey]) await note(options, quotas);
  return quotas;
}

async function turnOnQuotas(options: SetupOptions): Promise<Quotas> {
  const refusal = await enableSimpleQuotas(mountPoint(options));
  if (refusal !== undefined)
    options.say(
      `Note: no limits for disks here: simple quotas need Linux 6.7 and btrfs-progs 6.6.3 (${refusal}).`,
    );
  const quotas = quotasOf(mountPoint(options));
  await note(options, quotas);
  return quotas;
}

const note = ({ client, pool }: SetupOptions, quotas: Quotas) =>
  client.change('PATCH', poolPath(pool), { config: { [quotasKey]: quotas } });

const mountPoint = ({ incusDir, pool }: SetupOptions) => join(incusDir, 'storage-pools', pool);

/** The file takes up what is written to it, and no more; half leaves the host its own half. */
async function fittingSize(incusDir: string): Promise<number> {
  const { bavail, bsize } = await statfs(existsSync(incusDir) ? incusDir : dirname(incusDir));
  const freeGib = (bavail * bsize) / gib;
  const { smallestGib, largestGib } = poolSize;
  if (freeGib < smallestGib)
    throw new Error(
      `Only ${freeGib.toFixed(1)} GiB are free at ${incusDir}; a storage pool needs ${smallestGib}. Make room, or make a pool elsewhere and name it with BERTH_INCUS_POOL.`,
    );
  return Math.min(largestGib, Math.max(smallestGib, Math.floor(freeGib / 2)));
}

/** A bridge with a network of its own, wide enough for an address for every SSH port. Resolves with its address. */
export async function ensureNetwork(options: SetupOptions): Promise<string> {
  const { client, network: name } = options;
  const known = await find<NetworkFacts>(client, networkPath(name));
  if (known) return checkNetwork(options, known);
  if (name.length > longestName)
    throw new Error(`"${name}" is too long for a network: at most ${longestName} characters.`);
  const bits = bitsFor(countPorts(options.sshPorts));
  const subnet = chooseSubnet(await takenSubnets(client), bits);
  if (!subnet)
    throw new Error(
      `No private network of /${bits} is free here. Make one and name it with BERTH_INCUS_NETWORK: incus network create ${name} ipv4.address=ADDRESS/${bits} ipv4.nat=true ipv6.address=none dns.mode=none`,
    );
  const address = `${formatAddress(subnet.base + 1)}/${bits}`;
  options.say(`Making the network "${name}" (${address}) ...`);
  const body = { name, type: 'bridge', config: bridge(subnet, address) };
  await client.change('POST', '/1.0/networks', body, { timeoutMs: 60_000 });
  return address;
}

function bridge({ base, bits }: Subnet, address: string): Record<string, string> {
  const end = base + sizeOf(bits) - 2;
  return {
    'ipv4.address': address,
    'ipv4.nat': 'true',
    'ipv4.dhcp.ranges': `${formatAddress(end - dhcpAddresses + 1)}-${formatAddress(end)}`,
    'ipv6.address': 'none',
    // Else a guest learns the names of all others.
    'dns.mode': 'none',
  };
}

/** What is wrong with a network for so many SSH ports; undefined when nothing is. */
export function networkProblem(network: NetworkFacts, ports: number): string | undefined {
  const address = network.config['ipv4.address'] ?? 'none';
  const subnet = parseSubnet(address);
  if (!network.managed || network.type !== 'bridge')
    return `"${network.name}" is not a bridge of Incus. Name another one with BERTH_INCUS_NETWORK.`;
  if (!subnet)
    return `The network "${network.name}" has no IPv4. Give it some: incus network set ${network.name} ipv4.address=auto`;
  if (holds(subnet, ports)) return undefined;
  return `The network "${network.name}" (${address}) is too small for ${ports} SSH ports. Take a /${bitsFor(ports)}, or fewer ports with BERTH_SSH_PORTS.`;
}

function checkNetwork(options: SetupOptions, network: NetworkFacts): string {
  const problem = networkProblem(network, countPorts(options.sshPorts));
  if (problem !== undefined) throw new Error(problem);
  return network.config['ipv4.address'] ?? '';
}

interface Route {
  readonly dst?: string;
}

/** Networks that this host has a way to, all tables, other bridges of Incus (which may be down) and the name servers. */
async function takenSubnets(client: IncusClient): Promise<Subnet[]> {
  const query = { recursion: '1' };
  const networks = await client.get<NetworkFacts[]>('/1.0/networks', { query });
  const texts = [
    ...(await routes()),
    ...networks.map((network) => network.config['ipv4.address'] ?? ''),
    ...nameServers(),
  ];
  return texts.map(parseSubnet).filter((subnet) => subnet !== undefined);
}

async function routes(): Promise<string[]> {
  const { stdout } = await run('ip', ['-4', '-json', 'route', 'show', 'table', 'all']);
  return (JSON.parse(stdout) as Route[]).map((route) => route.dst ?? '');
}

function nameServers(): string[] {
  const path = '/etc/resolv.conf';
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  return [...text.matchAll(/^nameserver\s+(\S+)/gm)].map((match) => match[1] ?? '');
}

/** The rules of bridge-guard.ts, for as long as this machine runs. */
export async function applyGuard(rules: string): Promise<void> {
  // From a file: nft 1.0.9, which Ubuntu 24.04 has, reads nothing from the socket that a child of Node.js has as its input.
  const folder = await mkdtemp(join(tmpdir(), 'berth-guard-'));
  const file = join(folder, 'rules');
  try {
    await writeFile(file, rules, { mode: 0o600 });
    await run('nft', ['-f', file], { timeout: 30_000 });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
