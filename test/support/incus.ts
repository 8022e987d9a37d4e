/**
 * The Incus of a test run: `npm test` starts one and says here where it is. Every service and every engine under test
 * gets a project and a bridge of its own in it, so that no two of them see each other's instances, addresses or ports.
 */

import { randomInt } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { type CallOptions, IncusClient } from '../../src/engines/incus/client.ts';
import { isIncusError } from '../../src/engines/incus/incus-error.ts';
import { sleep } from './waiting.ts';

export interface IncusServer {
  /** As BERTH_INCUS_URL wants it. */
  readonly url: string;
  readonly pool: string;
  /** What the names of its bridges begin with: by that, whatever is left of them is known. */
  readonly prefix: string;
}

export const incusOfThisRun: IncusServer = {
  url: process.env.BERTH_TEST_INCUS_URL ?? '',
  pool: process.env.BERTH_TEST_INCUS_POOL ?? '',
  prefix: process.env.BERTH_TEST_INCUS_NETWORK ?? 'bt',
};

/** The engine that this run of the suite is about. */
export const engineUnderTest: 'sandbox' | 'incus' =
  process.env.BERTH_TEST_ENGINE === 'incus' ? 'incus' : 'sandbox';

/** Made for `{ skip }`: why Incus cannot be tried; false where it can. */
export const skipIncus: string | false =
  incusOfThisRun.url === '' || incusOfThisRun.pool === ''
    ? 'no Incus was started for this run; npm test does that, as root on Debian or Ubuntu'
    : false;

/** Made for `{ skip }`, of tests that are about one engine alone: why this run does not have them. */
export const onlyOn = (engine: 'sandbox' | 'incus', why: string): string | false =>
  engine !== engineUnderTest && `only on the ${engine} engine: ${why}`;

export interface IncusPlace {
  /** As BERTH_INCUS_URL wants it. */
  readonly url: string;
  readonly pool: string;
  readonly project: string;
  readonly network: string;
  /** The bridge's own, without a prefix length: where forwards listen. */
  readonly address: string;
  /** Whoever asks gets a client for the whole server; it names the project in each call. */
  readonly client: IncusClient;
  /** Removes every instance in it, then the bridge with its forwards, then the project. Twice does no harm. */
  remove(): Promise<void>;
}

let count = 0;

/** A name that no bridge of this host has. Linux takes 15 characters, so the number of the process is written short. */
function newName(prefix: string): string {
  for (;;) {
    count += 1;
    const name = `${prefix}-${process.pid.toString(36)}-${count}`;
    if (!existsSync(`/sys/class/net/${name}`)) return name;
  }
}

const projectConfig = {
  'features.images': 'false',
  'features.networks': 'false',
  'features.profiles': 'true',
  'features.storage.volumes': 'true',
};

const networkConfig = (subnet: string) => ({
  'ipv4.address': `${subnet}.1/24`,
  // Away from the addresses that instances are given, which begin at the other end.
  'ipv4.dhcp.ranges': `${subnet}.200-${subnet}.250`,
  'ipv4.nat': 'true',
  'ipv6.address': 'none',
  'dns.mode': 'none',
});

const reversed = (hex: string): number => Buffer.from(hex, 'hex').readUInt32LE();

/** How many routes of this host, the default one aside, have addresses of the subnet; /proc/net/route is in proc(5). */
function routesTo(subnet: string): number {
  const [first = 0, second = 0, third = 0] = subnet.split('.').map(Number);
  const wanted = Buffer.from([first, second, third, 0]).readUInt32BE();
  const lines = readFileSync('/proc/net/route', 'utf8').trim().split('\n').slice(1);
  return lines.filter((line) => {
    const fields = line.split('\t');
    const [target, mask] = [reversed(fields[1] ?? ''), reversed(fields[7] ?? '')];
    return mask !== 0 && (target & mask & 0xffffff00) === (wanted & mask & 0xffffff00);
  }).length;
}

/** At random, because other runs look for one at the same moment. */
function newSubnet(): string {
  for (let tries = 0; tries < 1000; tries += 1) {
    const blocks = [`10.${randomInt(256)}`, `172.${randomInt(16, 32)}`, '192.168'];
    const subnet = `${blocks[randomInt(blocks.length)]}.${randomInt(256)}`;
    if (routesTo(subnet) === 0) return subnet;
  }
  throw new Error('This host has routes to every private network.');
}

async function makeNetwork(client: IncusClient, name: string): Promise<string> {
  for (let failures = 0; ; ) {
    const subnet = newSubnet();
    const bridge = { name, type: 'bridge', config: networkConfig(subnet) };
    try {
      await client.change('POST', '/1.0/networks', bridge, { timeoutMs: 60_000 });
      if (routesTo(subnet) === 1) return `${subnet}.1`;
    } catch (error) {
      // Incus looks at all cards of the host, and fails when one goes meanwhile.
      failures += 1;
      if (failures === 5) throw error;
    }
    await gone(client, `/1.0/networks/${name}`);
  }
}

export async function openIncusPlace({
  url,
  pool,
  prefix,
}: IncusServer = incusOfThisRun): Promise<IncusPlace> {
  if (url === '' || pool === '') throw new Error(String(skipIncus));
  const client = new IncusClient({ endpoints: [url], tls: undefined, project: 'default' });
  const name = newName(prefix);
  const address = await makeNetwork(client, name);
  await client.change('POST', '/1.0/projects', { name, config: projectConfig });
  const remove = () => removePlace(client, name);
  return { url, pool, project: name, network: name, address, client, remove };
}

async function removePlace(client: IncusClient, name: string): Promise<void> {
  const query = { recursion: '1', 'all-projects': 'true' };
  const all = await client.get<Listed[]>('/1.0/instances', { query });
  for (const one of all) if (isIn(one, name)) await removeInstance(client, one);
  await gone(client, `/1.0/projects/${name}`);
  await gone(client, `/1.0/networks/${name}`);
  // Made by the engine, in the project that networks are in.
  await gone(client, `/1.0/network-acls/berth-${name}`);
  client.close();
}

interface Listed {
  readonly name: string;
  readonly project: string;
  readonly status: string;
  readonly expanded_devices: Readonly<Record<string, { readonly network?: string }>>;
}

/** Of a project, or of one beside it that uses the same bridge. */
function isIn({ project, expanded_devices: devices }: Listed, name: string): boolean {
  return project === name || Object.values(devices).some((device) => device.network === name);
}

/** What a service left is for the tests to find; here everything goes, in whatever state it is. */
async function removeInstance(
  client: IncusClient,
  { name, project, status }: Listed,
): Promise<void> {
  const path = `/1.0/instances/${name}`;
  const options = { project, timeoutMs: 60_000 };
  const stop = { action: 'stop', force: true, timeout: 20 };
  if (status !== 'Stopped')
    await client.change('PUT', `${path}/state`, stop, options).catch(() => undefined);
  await gone(client, path, options);
}

/** Incus fails at times where several of them change a host's firewall; what stays goes at the end of the run. */
async function gone(client: IncusClient, path: string, options: CallOptions = {}): Promise<void> {
  for (let tries = 1; tries <= 5; tries += 1) {
    const failure = await client.change('DELETE', path, undefined, options).then(
      () => undefined,
      (error: unknown) => error,
    );
    if (failure === undefined || isIncusError(failure, 'not_found')) return;
    if (tries === 5) console.error(`Not removed: ${path}: ${failure}`);
    await sleep(200);
  }
}
