/** What a guest whose root is hostile can do to its neighbours and its host by the bridge: nothing. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { guardRules, guardTable } from '../../src/engines/incus/bridge-guard.ts';
import {
  type Bridge,
  guestAddress,
  guestNames,
  guestNic,
} from '../../src/engines/incus/guest-address.ts';
import { accessListName, isolateGuests, readBridge } from '../../src/engines/incus/network.ts';
import { applyGuard } from '../../src/engines/incus/setup.ts';
import { formatAddress } from '../../src/engines/incus/subnets.ts';
import { type IncusPlace, openIncusPlace, skipIncus } from '../support/incus.ts';
import { eventually } from '../support/waiting.ts';
import { canConnect, greetIn, makeGuest, type TestGuest } from './incus-guests.ts';
import { countNames, sendDhcp } from './incus-packets.ts';

const range = { from: 22_000, to: 22_099 };
const DNS = 53;
const SERVED = 8_080;
const LEASE_MS = 60_000;
const SETTLED_MS = 20_000;
/** The place in the bridge's network of what its DHCP gives to strangers. */
const FREE_ADDRESS = 210;

const listRules = () => {
  const { status, stderr } = spawnSync('nft', ['list', 'ruleset'], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
};

describe('guests on the bridge', { skip: skipIncus }, () => {
  let place: IncusPlace;
  let bridge: Bridge;
  let hostile: TestGuest;
  let neighbour: TestGuest;
  const nicAt = (offset: number) =>
    guestNic(bridge, guestAddress(bridge, range.from + offset, range));

  const guardGuests = async () => {
    for (let times = 0; times < 2; times += 1) await applyGuard(guardRules(bridge, range));
    listRules();
  };
  const setNames = (mode: string) =>
    place.client.change('PATCH', `/1.0/networks/${place.network}`, {
      config: { 'dns.mode': mode },
    });
  const removeGuard = () => {
    for (const family of ['bridge', 'inet'])
      spawnSync('nft', ['delete', 'table', family, guardTable(bridge)]);
  };
  /** Of the bridge: when each ends, by hardware address. */
  const leases = (): Map<string, string> => {
    const folder = dirname(place.url.slice('unix:'.length));
    const path = join(folder, 'networks', place.network, 'dnsmasq.leases');
    let text = '';
    // It is empty for a moment whenever it is written anew.
    while (text === '') text = readFileSync(path, 'utf8');
    const words = text.split('\n').map((line) => line.split(' '));
    return new Map(words.map(([endsAt = '', mac = '']) => [mac, endsAt]));
  };

  const leased = ({ address }: TestGuest) => leases().get(guestNames(address).mac);
  const renew = async (guest: TestGuest) => {
    const before = leased(guest);
    const renewed = async () => {
      await guest.run('networkctl', 'renew', 'eth0');
      return leased(guest) !== before || undefined;
    };
    await eventually('a lease', LEASE_MS, renewed);
  };

  /** The neighbour's, by a request with its identifier; without rules that works. */
  const endLease = () =>
    eventually('no lease', LEASE_MS, async () => {
      const { mac } = guestNames(hostile.address);
      const { mac: client } = guestNames(neighbour.address);
      const { address } = neighbour;
      await sendDhcp(hostile, bridge.address, { mac, client, kind: 'DECLINE', address });
      return !leased(neighbour) || undefined;
    });

  before(async () => {
    place = await openIncusPlace();
    bridge = await readBridge(place.client, place.network);
    await setNames('managed');
    hostile = await makeGuest(place, `${place.network}-a`, nicAt(0));
    neighbour = await makeGuest(place, `${place.network}-b`, nicAt(1));
    await greetIn(neighbour, SERVED);
  });

  after(async () => {
    removeGuard();
    await place.remove();
    await place.client
      .change('DELETE', `/1.0/network-acls/${accessListName(place.network)}`)
      .catch(() => undefined);
  });

  it('reach neither the host nor each other once they are isolated', async () => {
    const server = createServer((socket) => socket.destroy());
    server.listen({ host: '0.0.0.0', port: 0 });
    await once(server, 'listening');
    const address = server.address();
    assert.ok(address !== null && typeof address === 'object');
    const { port } = address;
    const hosts = [...new Set([bridge.address, ...ownAddresses()])];
    try {
      for (const host of hosts) assert.equal(await canConnect(hostile, host, port), true, host);
      // By the host: the bridge itself lets no two guests talk.
      await hostile.run('ip', 'route', 'add', neighbour.address, 'via', bridge.address);
      assert.equal(await isolateGuests(place.client, place.network), true);
      // The bridges of other tests come and go meanwhile, and the host's addresses with them.
      await eventually('nothing more to change', SETTLED_MS, async () =>
        (await isolateGuests(place.client, place.network)) ? undefined : true,
      );
      for (const host of hosts) assert.equal(await canConnect(hostile, host, port), false, host);
      assert.equal(await canConnect(hostile, bridge.address, DNS), true);
    } finally {
      server.close();
    }
    assert.equal(await canConnect(hostile, neighbour.address, SERVED), false);
    await hostile.run('ip', 'route', 'delete', neighbour.address);
    assert.equal(await canConnect(hostile, neighbour.address, SERVED), false);
  });

  it('end no lease of a neighbour', async () => {
    removeGuard();
    const own = guestNames(hostile.address).mac;
    const theirs = guestNames(neighbour.address).mac;
    const { address } = neighbour;
    await renew(neighbour);
    await endLease();
    await renew(neighbour);
    await guardGuests();
    for (const mac of [theirs, own])
      for (const kind of ['RELEASE', 'DECLINE', 'late DECLINE'] as const)
        await sendDhcp(hostile, bridge.address, { mac, client: theirs, kind, address });
    // What was sent before is dealt with once this is.
    await renew(hostile);
    assert.ok(leased(neighbour) !== undefined);
    await renew(neighbour);
  });

  it('take no lease for anybody else', async () => {
    removeGuard();
    const take = async (offset: number) => {
      const { mac } = guestNames(guestAddress(bridge, range.to - offset, range));
      const address = formatAddress(bridge.subnet.base + FREE_ADDRESS + offset);
      await sendDhcp(hostile, bridge.address, { mac, client: mac, kind: 'REQUEST', address });
      return mac;
    };
    await eventually('a lease', LEASE_MS, async () => leases().has(await take(0)) || undefined);
    await guardGuests();
    const wanted = await take(1);
    await renew(hostile);
    assert.equal(leases().has(wanted), false);
  });

  it('learn no names of others', async () => {
    const count = () => countNames(hostile, bridge.address, neighbour.address);
    assert.equal(await count(), 1, 'as Incus has it');
    await setNames('none');
    // A lease keeps its name for as long as it is renewed.
    removeGuard();
    await endLease();
    assert.equal(await count(), 0, 'without a lease');
    await renew(neighbour);
    assert.equal(await count(), 0, 'with a lease from then on');
  });

  it('reach no name server of the host but the one that is theirs', async () => {
    const [address] = ownAddresses();
    assert.ok(address !== undefined);
    const server = createServer((socket) => socket.destroy());
    server.listen({ host: address, port: DNS });
    // Where there is one already, that one will do.
    await Promise.race([once(server, 'listening'), once(server, 'error')]);
    try {
      removeGuard();
      assert.equal(await canConnect(hostile, address, DNS), true, 'without rules');
      await guardGuests();
      assert.equal(await canConnect(hostile, address, DNS), false);
      assert.equal(await canConnect(hostile, bridge.address, DNS), true);
    } finally {
      server.close();
    }
  });

  it('send nothing under an address of their neighbour or of nobody', async () => {
    assert.equal(await canConnect(hostile, bridge.address, DNS), true);
    for (const address of [neighbour.address, guestAddress(bridge, range.to, range)]) {
      await useAddress(hostile, address);
      assert.equal(await canConnect(hostile, bridge.address, DNS), false, address);
    }
    await useAddress(hostile, hostile.address);
    assert.equal(await canConnect(hostile, bridge.address, DNS), true);
  });

  it('draw no traffic of a neighbour to themselves with its hardware address', async () => {
    await guardGuests();
    const { mac } = guestNames(neighbour.address);
    const { port } = guestNames(hostile.address);
    const link = ['ip', 'link', 'set', 'dev', 'eth0'];
    for (const words of [['down'], ['address', mac], ['up']]) await hostile.run(...link, ...words);
    await useAddress(hostile, neighbour.address);
    assert.equal(await canConnect(hostile, bridge.address, DNS), false);
    const { stdout } = spawnSync('bridge', ['fdb', 'show', 'br', bridge.name], {
      encoding: 'utf8',
    });
    const claims = stdout.split('\n').filter((line) => line.includes(mac) && line.includes(port));
    assert.deepEqual(claims, []);
    assert.equal(await canConnect(neighbour, bridge.address, DNS), true);
  });
});

const ownAddresses = (): string[] =>
  Object.entries(networkInterfaces())
    .filter(([name]) => name.startsWith('e'))
    .flatMap(([, addresses]) => addresses ?? [])
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address);

async function useAddress(guest: TestGuest, address: string): Promise<void> {
  await guest.run('ip', 'address', 'flush', 'dev', 'eth0');
  await guest.run('ip', 'address', 'add', `${address}/24`, 'dev', 'eth0');
}
