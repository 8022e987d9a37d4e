/** `berth admin engine check` for Incus: what is there, what is missing, how to mend it. Changes nothing. */

import { join } from 'node:path';
import { type Finding, good, missing, weak } from '../../domain/findings.ts';
import { checkHost, checkReserve } from './check-host.ts';
import type { IncusClient } from './client.ts';
import { endpointOf, isLocal, stateFolder } from './endpoint.ts';
import { IncusError } from './incus-error.ts';
import { templateOf } from './names.ts';
import { accessListName } from './network.ts';
import type { IncusOptions } from './options.ts';
import { quotasKey, quotasOf } from './pool-quotas.ts';
import {
  countPorts,
  find,
  type NetworkFacts,
  networkPath,
  networkProblem,
  type PoolFacts,
  poolPath,
} from './setup.ts';
import { answers } from './silence.ts';

interface Server {
  readonly auth: string;
  readonly environment: {
    readonly server_name: string;
    readonly server_version: string;
    readonly server_clustered: boolean;
    /** Such as `lxc` or `lxc | qemu`. */
    readonly driver: string;
  };
}

interface Member {
  readonly server_name: string;
  readonly url: string;
  readonly status: string;
  readonly message: string;
}

interface Alias {
  readonly name: string;
  readonly type: string;
}

const timeoutMs = 5_000;
const oldestVersion = 6;
const lowSpaceShare = 0.1;
const gib = 2 ** 30;
const setUpCommand = 'npm run quickstart -- --engine incus';
const setUp = `Make it: ${setUpCommand}, or as docs/incus.md says`;
/** Drivers whose own limits always hold. */
const limitingDrivers = ['zfs', 'lvm', 'lvmcluster', 'ceph', 'linstor', 'truenas'];

export async function checkIncus(client: IncusClient, options: IncusOptions): Promise<Finding[]> {
  const where = client.endpoints.map(({ name }) => name).join(', ');
  let server: Server;
  try {
    server = await client.get<Server>('/1.0', { timeoutMs });
  } catch (error) {
    return [missing('API', `no answer from ${where}${because(error)}`, reachAdvice(error, where))];
  }
  if (server.auth !== 'trusted') return [untrusted(where)];
  const findings = [good('API', `answers on ${where}`), checkVersion(server)];
  const checks = [
    () => checkPool(client, options),
    () => checkNetwork(client, options),
    () => checkTemplates(client),
    () => checkMembers(client, options, server),
  ];
  for (const check of checks) findings.push(...(await check()));
  return [...findings, checkMachines(server), ...(isLocal(options) ? checkHost() : [])];
}

/** The system's own word for it, such as ENOENT; Incus's client says no more than that it is not there. */
function because(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  const code = cause instanceof Error && 'code' in cause ? ` (${String(cause.code)})` : '';
  return error instanceof IncusError && error.kind === 'timeout' ? ' in time' : code;
}

function reachAdvice(error: unknown, where: string): string {
  const reason = because(error);
  if (reason.includes('EACCES'))
    return 'Run this as root, or add your user to the group "incus-admin".';
  if (!where.startsWith('unix:'))
    return 'See that the server listens there (incus config set core.https_address), that no firewall is between, and that BERTH_INCUS_SERVER_CERT is its certificate.';
  return 'Start it (systemctl start incus), or install and start it: npm run quickstart -- --engine incus';
}

const untrusted = (where: string): Finding =>
  missing(
    'API',
    `${where} answers, but does not trust our certificate`,
    'On the server: incus config trust add-certificate CLIENT.crt --name berth',
  );

function checkVersion({ environment }: Server): Finding {
  const { server_version: version, server_name: name } = environment;
  const found = `Incus ${version} on ${name}`;
  return Number.parseInt(version, 10) >= oldestVersion
    ? good('version', found)
    : missing('version', found, 'Berth needs Incus 6.0 or later.');
}

async function checkPool(client: IncusClient, options: IncusOptions): Promise<Finding[]> {
  const pool = await find<PoolFacts>(client, poolPath(options.pool));
  if (!pool) return [missing('storage pool', `there is no pool "${options.pool}"`, setUp)];
  const found = `"${pool.name}": ${pool.driver}`;
  if (pool.status !== 'Created')
    return [missing('storage pool', `${found}, ${pool.status}`, 'See: incus storage show')];
  const copies = pool.driver !== 'dir';
  const kind = copies
    ? good('storage pool', found)
    : weak('storage pool', found, 'Take btrfs or ZFS: this one copies whole disks each time.');
  return [kind, checkQuotas(pool, options), ...(await checkSpace(client, options))];
}

function checkQuotas(pool: PoolFacts, options: IncusOptions): Finding {
  const topic = 'disk limits';
  if (limitingDrivers.includes(pool.driver)) return good(topic, `of ${pool.driver} itself`);
  const renew = `Take a new pool, with Linux 6.7 and btrfs-progs 6.6.3 or later. ${setUp}`;
  switch (quotasIn(pool, options)) {
    case 'simple':
      return good(topic, 'simple quotas');
    case 'full':
      return weak(topic, 'the older quotas of btrfs: snapshots take seconds', renew);
    case 'none':
      return weak(topic, 'none: a disk may fill the whole pool', renew);
    default:
      return weak(
        topic,
        'nobody has noted which quotas this pool has',
        `On its host: btrfs quota enable --simple POOL, while it is empty; then: incus storage set ${pool.name} ${quotasKey}=simple`,
      );
  }
}

function quotasIn(pool: PoolFacts, options: IncusOptions): string {
  if (pool.driver === 'dir') return 'none';
  const noted = pool.config[quotasKey];
  const state = stateFolder(options);
  if (noted !== undefined || state === undefined) return noted ?? 'unknown';
  return quotasOf(join(state, 'storage-pools', pool.name));
}

async function checkSpace(client: IncusClient, options: IncusOptions): Promise<Finding[]> {
  interface Resources {
    readonly space: { readonly used?: number; readonly total: number };
  }
  const { space } = await client.get<Resources>(`${poolPath(options.pool)}/resources`);
  const { used = 0, total } = space;
  const free = total - used;
  const found = `${(free / gib).toFixed(1)} of ${(total / gib).toFixed(1)} GiB free`;
  const size = `Make it larger: incus storage set ${options.pool} size=...`;
  const finding = free < total * lowSpaceShare ? weak('space', found, size) : good('space', found);
  return [finding, ...(isLocal(options) ? await checkReserve(client, options.pool, free) : [])];
}

async function checkNetwork(client: IncusClient, options: IncusOptions): Promise<Finding[]> {
  const network = await find<NetworkFacts>(client, networkPath(options.network));
  if (!network) return [missing('network', `there is no network "${options.network}"`, setUp)];
  const ports = countPorts(options.sshPorts);
  const problem = networkProblem(network, ports);
  if (problem !== undefined) return [missing('network', problem, setUp)];
  const { name, config } = network;
  const found = `"${name}": ${config['ipv4.address']}, room for ${ports} SSH ports`;
  const nat = `To let instances out: incus network set ${name} ipv4.nat=true`;
  const hasWayOut = config['ipv4.nat'] === 'true';
  return [
    hasWayOut ? good('network', found) : weak('network', `${found}, no way out of it`, nat),
    checkIsolation(network),
    checkNames(network),
  ];
}

/** The access list is the service's own work; here one sees whether it is in use. */
function checkIsolation({ name, config }: NetworkFacts): Finding {
  const lists = (config['security.acls'] ?? '').split(',');
  if (lists.includes(accessListName(name)))
    return good('isolation', 'instances reach neither their host nor each other');
  return weak(
    'isolation',
    'instances reach their host and each other',
    'The service mends that when it starts.',
  );
}

function checkNames({ name, config }: NetworkFacts): Finding {
  const topic = 'names';
  if (config['dns.mode'] === 'none') return good(topic, 'instances learn no names of others');
  const advice = `To end that: incus network set ${name} dns.mode=none`;
  return weak(topic, 'an instance can ask the DNS for the names of all others', advice);
}

async function checkTemplates(client: IncusClient): Promise<Finding[]> {
  const aliases = await client.get<Alias[]>('/1.0/images/aliases', { query: { recursion: '1' } });
  const templates = aliases.flatMap(({ name, type }) => {
    const template = templateOf(name);
    return template === undefined ? [] : [type === 'container' ? template : `${template} (VM)`];
  });
  if (templates.length > 0) return [good('templates', templates.join(', '))];
  return [missing('templates', 'there are none', 'Make the default: berth admin image build')];
}

async function checkMembers(
  client: IncusClient,
  options: IncusOptions,
  server: Server,
): Promise<Finding[]> {
  if (!server.environment.server_clustered) return [good('hosts', 'one, not in a cluster')];
  const query = { recursion: '1' };
  const members = await client.get<Member[]>('/1.0/cluster/members', { query, timeoutMs });
  return Promise.all(members.map((member) => checkMember(member, options)));
}

/** The cluster believes in a lost member for a while, and in one that we alone cannot reach for ever. */
async function checkMember(member: Member, { tls }: IncusOptions): Promise<Finding> {
  const { server_name: name, url, status, message } = member;
  if (status !== 'Online')
    return weak(
      'host',
      `${name} is ${status.toLowerCase()}: ${message}`,
      'See: incus cluster list',
    );
  const endpoint = endpointOf(url, tls);
  const isThere = await answers(endpoint);
  endpoint.agent.destroy();
  if (isThere) return good('host', `${name} is online`);
  const advice = `See that it runs, and that ${new URL(url).host} can be reached from here.`;
  return weak('host', `${name} does not answer: its instances are UNKNOWN`, advice);
}

/** Most want containers: without virtual machines nothing is the matter. */
const checkMachines = ({ environment }: Server): Finding =>
  good(
    'virtual machines',
    environment.driver.includes('qemu')
      ? 'possible'
      : 'not possible here: they need the package "incus" with QEMU, /dev/kvm and the kernel module vhost_vsock',
  );
