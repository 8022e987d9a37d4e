/** Published ports by network forwards, on a bridge of their own. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { after, afterEach, before, describe, it } from 'node:test';
import { EngineError } from '../../src/engines/engine.ts';
import { IncusClient } from '../../src/engines/incus/client.ts';
import type { ForwardObject } from '../../src/engines/incus/forward-board.ts';
import { Forwards, type Guest } from '../../src/engines/incus/forwards.ts';
import { type Bridge, guestAddress, guestNic } from '../../src/engines/incus/guest-address.ts';
import { readBridge } from '../../src/engines/incus/network.ts';
import { type IncusPlace, openIncusPlace, skipIncus } from '../support/incus.ts';
import { greetIn, makeGuest } from './incus-guests.ts';

const range = { from: 22_000, to: 22_099 };

/** Notes which lists are written. */
class WatchedClient extends IncusClient {
  readonly writes: string[] = [];

  override call(...words: Parameters<IncusClient['call']>): ReturnType<IncusClient['call']> {
    if (words[0] !== 'GET') this.writes.push(words[0]);
    return super.call(...words);
  }
}

describe('forwards', { skip: skipIncus }, () => {
  let place: IncusPlace;
  let bridge: Bridge;
  let client: WatchedClient;
  let forwards: Forwards;
  const logged: string[] = [];

  const path = (): string => `/1.0/networks/${place.network}/forwards/${place.address}`;
  const open = async (listenAddress?: string): Promise<Forwards> => {
    const log = (_level: string, message: string) => void logged.push(message);
    const opened = new Forwards(client, { network: place.network, listenAddress, log });
    await opened.load();
    return opened;
  };
  const guest = (offset: number): Guest => ({
    ref: `guest-${offset}`,
    address: guestAddress(bridge, range.from + offset, range),
  });
  const ports = (offset: number, ...httpPorts: number[]) => ({
    sshPort: range.from + offset,
    httpPorts,
  });
  const listed = async (address = place.address): Promise<string[]> => {
    const all = await place.client.get<ForwardObject[]>(`/1.0/networks/${place.network}/forwards`, {
      query: { recursion: '1' },
    });
    const found = all.find(({ listen_address }) => listen_address === address);
    return (found?.ports ?? []).map(({ listen_port }) => listen_port).sort();
  };

  before(async () => {
    place = await openIncusPlace();
    client = new WatchedClient({ endpoints: [place.url], tls: undefined, project: place.project });
    bridge = await readBridge(client, place.network);
    forwards = await open();
  });

  afterEach(async () => {
    for (const ref of forwards.refs()) await forwards.withdraw(ref);
  });

  after(async () => {
    client.close();
    await place.remove();
  });

  it('publishes, shows, changes and withdraws the ports of a guest', async () => {
    assert.equal(forwards.of('guest-0'), undefined);
    await forwards.set(guest(0), ports(0, 9_001, 9_000));
    const endpoint = { ip: place.address, port: range.from };
    assert.deepEqual(forwards.of('guest-0'), { endpoint, httpPorts: [9_000, 9_001] });
    assert.deepEqual(await listed(), ['22000', '9000', '9001']);
    await forwards.set(guest(0), ports(0, 9_002));
    assert.deepEqual(forwards.of('guest-0'), { endpoint, httpPorts: [9_002] });
    assert.deepEqual(await listed(), ['22000', '9002']);
    const before = client.writes.length;
    await forwards.set(guest(0), ports(0, 9_002));
    assert.equal(client.writes.length, before, 'what is there is not written again');
    for (let times = 0; times < 2; times += 1) await forwards.withdraw('guest-0');
    assert.equal(forwards.of('guest-0'), undefined);
    assert.deepEqual(await listed(), []);
  });

  it('leaves the ports below 1024 to the host', async () => {
    await forwards.set(guest(7), ports(7, 1024));
    for (const port of [22, 53, 1023]) {
      const error = await forwards.set(guest(7), ports(7, 9_030, port)).catch((thrown) => thrown);
      assert.ok(error instanceof EngineError);
      assert.equal(error.kind, 'port_refused');
      assert.match(error.message, new RegExp(`Port ${port} `));
    }
    assert.deepEqual(await listed(), ['1024', '22007']);
    await forwards.setWhatIsFree(guest(7), ports(7, 53, 9_030));
    assert.deepEqual(await listed(), ['22007', '9030']);
  });

  it('knows after a restart of the service whose the ports are', async () => {
    await forwards.set(guest(1), ports(1, 9_003));
    const again = await open();
    assert.deepEqual(again.of('guest-1'), forwards.of('guest-1'));
    assert.deepEqual([...again.refs()], ['guest-1']);
    await again.withdraw('guest-1');
    assert.deepEqual(await listed(), []);
    forwards = again;
  });

  it('puts right what others changed, once their change is through', async () => {
    await forwards.set(guest(8), ports(8, 9_050));
    const before = client.writes.length;
    const heal = () => forwards.heal(() => false);
    const changed = () => logged.filter((line) => line.includes('changed by others')).length;
    logged.length = 0;
    for (const ports of [[], undefined]) {
      await heal();
      if (ports) await place.client.change('PUT', path(), { config: {}, description: '', ports });
      else await place.client.change('DELETE', path());
      await heal();
      assert.deepEqual(await listed(), [], 'it may not have reached the firewall yet');
      await heal();
      assert.deepEqual(await listed(), ['22008', '9050']);
      await heal();
    }
    assert.equal(client.writes.length - before, 2);
    assert.equal(changed(), 2);
  });

  it('leaves what others forward alone, and does not take their ports', async () => {
    await forwards.set(guest(2), ports(2));
    const theirs = {
      description: 'of the operator',
      protocol: 'tcp',
      listen_port: '9010-9012',
      target_port: '80',
      target_address: guest(3).address,
    };
    const { value } = await place.client.getTagged<ForwardObject>(path());
    const body = { ...value, description: 'kept', ports: [...(value.ports ?? []), theirs] };
    await place.client.change('PUT', path(), body);
    await refusal(9_011, () => forwards.set(guest(2), ports(2, 9_011)));
    await forwards.set(guest(2), ports(2, 9_013));
    assert.deepEqual(await listed(), ['22002', '9010-9012', '9013']);
    await forwards.withdraw('guest-2');
    const left = await place.client.get<ForwardObject>(path());
    assert.equal(left.description, 'kept');
    assert.deepEqual(left.ports, [theirs]);
    await place.client.change('PUT', path(), { ...left, ports: [] });
  });

  it('names a port that a server of the host or another guest has, and changes nothing', async () => {
    const everywhere = await occupy('0.0.0.0');
    const here = await occupy(place.address);
    await forwards.set(guest(4), ports(4, 9_020));
    await forwards.set(guest(5), ports(5, 9_021));
    for (const port of [portOf(everywhere), portOf(here), 9_020])
      await refusal(port, () => forwards.set(guest(5), ports(5, 9_022, port)));
    assert.deepEqual(forwards.of('guest-5')?.httpPorts, [9_021]);
    assert.deepEqual(await listed(), ['22004', '22005', '9020', '9021']);
    logged.length = 0;
    const wanted = ports(5, 9_020, 9_022, portOf(here));
    await forwards.setWhatIsFree(guest(5), wanted);
    assert.deepEqual(forwards.of('guest-5')?.httpPorts, [9_022]);
    assert.equal(logged.length, 2);
    await refusal(portOf(here), () =>
      forwards.setWhatIsFree(guest(5), { sshPort: portOf(here), httpPorts: [] }),
    );
    for (const server of [everywhere, here]) server.close();
  });

  it('knocks where it cannot listen: at the address of another host', async () => {
    // 192.0.2.0/24 is for documentation (RFC 5737): nobody answers there, and that counts as free.
    const away = await open('192.0.2.77');
    await away.set(guest(6), ports(6));
    assert.deepEqual(away.of('guest-6')?.endpoint, { ip: '192.0.2.77', port: range.from + 6 });
    await forwards.load();
    await forwards.set(guest(6), ports(6));
    assert.deepEqual(await listed('192.0.2.77'), [], 'it has moved to the other listen address');
    assert.deepEqual(forwards.of('guest-6')?.endpoint?.ip, place.address);
  });

  it('writes few lists for many guests at once, and refuses only whom it must', async () => {
    await forwards.set(guest(0), ports(0, 9_030));
    const before = client.writes.length;
    const offsets = Array.from({ length: 64 }, (_unused, index) => index + 1);
    const outcomes = await Promise.allSettled(
      offsets.map((offset) => forwards.set(guest(offset), ports(offset, 9_100 + offset))),
    );
    assert.deepEqual(
      outcomes.filter(({ status }) => status === 'rejected'),
      [],
    );
    const writes = client.writes.length - before;
    assert.ok(writes <= 16, `${writes} lists were written for 64 guests`);
    assert.equal((await listed()).length, 130);
    // One that Incus refuses: the address is not on the bridge.
    const astray: Guest = { ref: 'astray', address: '203.0.113.9' };
    const both = await Promise.allSettled([
      forwards.set(astray, ports(80)),
      forwards.set(guest(81), ports(81)),
    ]);
    assert.deepEqual(
      both.map(({ status }) => status),
      ['rejected', 'fulfilled'],
    );
    assert.equal(forwards.of('astray'), undefined);
    assert.equal((await listed()).includes(String(range.from + 81)), true);
  });

  it('forwards to the guest, cuts what went through a withdrawn port, and nothing else', async () => {
    const nic = guestNic(bridge, guest(7).address);
    const made = await makeGuest(place, `${place.network}-f`, nic);
    const seven: Guest = { ...guest(7), place: made.place };
    for (const port of [9_040, 9_041]) await greetIn(made, port);
    await forwards.set(seven, ports(7, 9_040, 9_041));
    const kept = await greeted(place.address, 9_040);
    const cut = await greeted(place.address, 9_041);
    const closed = new Promise((resolve) => cut.once('close', resolve));
    await forwards.set(seven, ports(7, 9_040));
    await closed;
    assert.equal(await echo(kept, 'still there\n'), 'still there\n');
    kept.destroy();
    const late = connect(9_041, place.address);
    const [error] = (await once(late, 'error')) as [NodeJS.ErrnoException];
    assert.equal(error.code, 'ECONNREFUSED');
  });
});

async function refusal(port: number, work: () => Promise<unknown>): Promise<void> {
  await assert.rejects(work, (error: unknown) => {
    assert.ok(error instanceof EngineError, String(error));
    assert.equal(error.kind, 'port_taken');
    assert.match(error.message, new RegExp(`\\b${port}\\b`));
    return true;
  });
}

async function occupy(host: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  server.listen({ host, port: 0 });
  await once(server, 'listening');
  return server;
}

function portOf(server: Server): number {
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return address.port;
}

/** A connection that the guest's server has greeted. */
async function greeted(host: string, port: number): Promise<Socket> {
  const socket = connect(port, host);
  socket.on('error', () => undefined);
  const [first] = (await once(socket, 'data')) as [Buffer];
  assert.match(first.toString(), /^hello from /);
  return socket;
}

async function echo(socket: Socket, line: string): Promise<string> {
  const answer = once(socket, 'data') as Promise<[Buffer]>;
  socket.write(line);
  return (await answer)[0].toString();
}
