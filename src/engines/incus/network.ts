/**
 * The bridge that guests are on, and what they may reach by it.
 *
 * Incus puts the rules of the bridge's access lists (`security.acls`) into the host's input as well as between guests
 * and the world, after its own that let DNS and DHCP through. So one list is enough: whatever is the host's is refused,
 * and so is every other guest. The bridge's own network counts as that, which also ends the detour by the host that the
 * isolation of ports on the bridge leaves open. IPv6 is refused altogether: guests have none.
 */

import { EngineError } from '../engine.ts';
import type { CallOptions, IncusClient } from './client.ts';
import type { Bridge } from './guest-address.ts';
import { isIncusError } from './incus-error.ts';
import { parseSubnet } from './subnets.ts';

interface NetworkObject {
  readonly name: string;
  readonly type: string;
  readonly managed: boolean;
  readonly config: Readonly<Record<string, string>>;
}

interface Rule {
  readonly action: string;
  readonly state: string;
  readonly description?: string;
  readonly destination?: string;
}

interface AccessList {
  readonly description: string;
  readonly config: Readonly<Record<string, string>>;
  readonly ingress: readonly Rule[] | null;
  readonly egress: readonly Rule[] | null;
}

interface NetworkState {
  readonly addresses: readonly { readonly family: string; readonly address: string }[] | null;
}

const readMs = 4_000;
/** Incus writes the firewall anew and starts the bridge's DHCP server again. */
const changeMs = 30_000;

const networkPath = (name: string): string => `/1.0/networks/${encodeURIComponent(name)}`;

/** @throws EngineError `unavailable` when it is no bridge of Incus with IPv4 */
export async function readBridge(client: IncusClient, name: string): Promise<Bridge> {
  const network = await client.get<NetworkObject>(networkPath(name), { timeoutMs: readMs });
  const text = network.config['ipv4.address'] ?? '';
  const subnet = parseSubnet(text);
  if (!network.managed || network.type !== 'bridge' || !subnet)
    throw new EngineError(
      'unavailable',
      `"${name}" is not a bridge of Incus with an IPv4 network. The operator names one with BERTH_INCUS_NETWORK.`,
    );
  return { name, address: text.split('/')[0] ?? '', subnet };
}

/** Loopback, link-local (the credentials that clouds hand out), multicast, and what is reserved or for everybody. */
const neverFor = ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3'];

/** The list's name: one for each bridge, because the bridge's own network is in it. */
export const accessListName = (network: string): string => `berth-${network}`;

/**
 * Shuts guests of a bridge off from their hosts and from each other; resolves with `false` when all was as it should
 * be. The hosts' addresses are those of this moment, so it is to be called again whenever they may have changed.
 */
export async function isolateGuests(client: IncusClient, name: string): Promise<boolean> {
  const network = await client.get<NetworkObject>(networkPath(name), { timeoutMs: readMs });
  const own = network.config['ipv4.address'] ?? '';
  const { addresses, isSure } = await hostAddresses(client);
  const destinations = new Set([...neverFor, own, ...addresses]);
  const listed = await ensureAccessList(client, accessListName(name), destinations, isSure);
  const used = await useAccessList(client, network);
  return listed || used;
}

async function ensureAccessList(
  client: IncusClient,
  name: string,
  destinations: ReadonlySet<string>,
  isSure: boolean,
): Promise<boolean> {
  const path = `/1.0/network-acls/${name}`;
  const known = await find<AccessList>(client, path);
  const [first, ...others] = known?.egress ?? [];
  // A host that does not answer keeps the addresses that it had.
  const kept = isSure ? [] : (first?.destination ?? '').split(',').filter(isIpv4);
  const destination = [...destinations.union(new Set(kept))].sort().join(',');
  const rule: Rule = {
    action: 'reject',
    state: 'enabled',
    description: 'the host and other guests',
    destination: `${destination},::/0`,
  };
  const list = {
    description: 'What instances of Berth may not reach; written by Berth.',
    config: {},
    ingress: [],
    egress: [rule],
  };
  if (!known) {
    await client.change('POST', '/1.0/network-acls', { name, ...list }, { timeoutMs: changeMs });
    return true;
  }
  const same = others.length === 0 && (known.ingress ?? []).length === 0;
  if (same && first?.action === rule.action && first.destination === rule.destination)
    if (first.state === 'enabled') return false;
  await client.change('PUT', path, list, { timeoutMs: changeMs });
  return true;
}

async function useAccessList(client: IncusClient, network: NetworkObject): Promise<boolean> {
  const { config } = network;
  const lists = (config['security.acls'] ?? '').split(',').filter((list) => list !== '');
  const ours = accessListName(network.name);
  // Without these Incus refuses whatever no rule lets through. An operator's own word counts.
  const defaults = {
    'security.acls.default.egress.action': 'allow',
    'security.acls.default.ingress.action': 'allow',
  };
  const missing = Object.entries(defaults).filter(([key]) => config[key] === undefined);
  if (lists.includes(ours) && missing.length === 0) return false;
  const acls = [...new Set([...lists, ours])].join(',');
  const body = { config: { ...Object.fromEntries(missing), 'security.acls': acls } };
  await client.change('PATCH', networkPath(network.name), body, { timeoutMs: changeMs });
  return true;
}

const isIpv4 = (destination: string): boolean => /^[0-9]+\./.test(destination);

interface HostAddresses {
  readonly addresses: readonly string[];
  /** Every host has told its own. */
  readonly isSure: boolean;
}

/** IPv4 addresses of all hosts, of whatever interface, in no order. */
async function hostAddresses(client: IncusClient): Promise<HostAddresses> {
  const { environment } = await client.get<{ environment: { server_clustered: boolean } }>('/1.0', {
    timeoutMs: readMs,
  });
  if (!environment.server_clustered)
    return { addresses: await addressesOf(client, { timeoutMs: readMs }), isSure: true };
  const query = { recursion: '1' };
  const members = await client.get<{ server_name: string; url: string }[]>('/1.0/cluster/members', {
    query,
    timeoutMs: readMs,
  });
  const found = members.map(async ({ server_name: target, url }) => {
    const known = parseSubnet(new URL(url).hostname) ? [`${new URL(url).hostname}/32`] : [];
    // A host that does not answer has the address that the cluster knows it by, at least.
    const others = await addressesOf(client, { target, timeoutMs: readMs }).catch(() => undefined);
    return { addresses: [...known, ...(others ?? [])], isSure: others !== undefined };
  });
  const all = await Promise.all(found);
  return {
    addresses: all.flatMap(({ addresses }) => addresses),
    isSure: all.every(({ isSure }) => isSure),
  };
}

async function addressesOf(client: IncusClient, options: CallOptions): Promise<string[]> {
  const paths = await client.get<string[]>('/1.0/networks', options);
  const names = paths.map((path) => decodeURIComponent(path.split('/').at(-1) ?? ''));
  const states = await Promise.all(
    // Ports of guests on bridges have none.
    names
      .filter((name) => !/^(?:veth|tap|bth[0-9a-f]{8}(?:-[1-9])?$)/.test(name))
      .map((name) => find<NetworkState>(client, `${networkPath(name)}/state`, options)),
  );
  return states
    .flatMap((state) => state?.addresses ?? [])
    .filter(({ family }) => family === 'inet')
    .map(({ address }) => `${address}/32`);
}

async function find<T>(
  client: IncusClient,
  path: string,
  options: CallOptions = { timeoutMs: readMs },
): Promise<T | undefined> {
  try {
    return await client.get<T>(path, options);
  } catch (error) {
    if (isIncusError(error, 'not_found')) return undefined;
    throw error;
  }
}
