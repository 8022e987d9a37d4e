/** One published port, with a visitor and a guest that do their worst: all of it over real sockets. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { after, afterEach, test } from 'node:test';
import { dialerAt } from '../../src/engines/sandbox/dialer.ts';
import { PortForwarder } from '../../src/engines/sandbox/port-forwarder.ts';
import { addressFor, PublishedPorts } from '../../src/engines/sandbox/published-ports.ts';
import { occupy, vacate } from '../support/guest-server.ts';
import { claimPorts } from '../support/ports.ts';
import { eventually } from '../support/waiting.ts';
import { rejectsWith } from './engine-contract.ts';

const HOST = '127.0.0.1';
const SSH_PORT = 22_345;
const guestAddress = addressFor(SSH_PORT);
const running = {
  ref: 'running',
  launcher: { pid: process.pid, startTicks: '0' },
  endpoint: { ip: HOST, port: SSH_PORT },
  depth: 1,
  unconfined: false,
  ownNetwork: false,
};
const range = await claimPorts(40);
let nextPort = range.from;
const problems: unknown[] = [];
const published = new PublishedPorts(
  HOST,
  (_level, _message, fields) => problems.push(fields),
  () => dialerAt(guestAddress),
);
const sockets: Socket[] = [];
const servers: Server[] = [];

process.on('uncaughtException', (error) => problems.push(error));
afterEach(async () => {
  await published.withdrawAll();
  for (const socket of sockets.splice(0)) socket.destroy();
  await Promise.all(
    servers.splice(0).map((server) => new Promise((resolve) => server.close(resolve))),
  );
});
after(() => assert.deepEqual(problems, [], 'no error of a connection is one of the service'));

/** A published port with this guest behind it. */
async function publish(guest?: (socket: Socket) => void): Promise<number> {
  const port = nextPort++;
  if (guest !== undefined) {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      sockets.push(socket);
      socket.on('error', () => undefined);
      guest(socket);
    });
    servers.push(server);
    server.listen({ host: guestAddress, port });
    await once(server, 'listening');
  }
  await published.set(`ref-${port}`, running, [port]);
  return port;
}

function visit(port: number): Socket {
  const socket = connect({ host: HOST, port, allowHalfOpen: true });
  sockets.push(socket);
  socket.on('error', () => undefined);
  return socket;
}

/** All that comes until the other side has said all; the socket stays open for what is still to be said. */
function read(socket: Socket): Promise<string> {
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  return new Promise((resolve) => {
    socket.once('end', () => resolve(text));
    socket.once('close', () => resolve(`cut after ${text.length} characters`));
  });
}

const closed = (socket: Socket) =>
  eventually('a closed connection', 10_000, () => socket.destroyed || undefined);

test('every port has a loopback address of its own that no other has', () => {
  assert.equal(addressFor(22_000), '127.64.85.240');
  const all = new Set(Array.from({ length: 65_536 }, (_, port) => addressFor(port)));
  assert.equal(all.size, 65_536);
});

test('who has said all is still answered, whole', async () => {
  const answer = 'x'.repeat(3_000_000);
  const port = await publish(async (socket) => {
    const asked = await read(socket);
    socket.end(asked + answer);
  });
  const visitor = visit(port);
  visitor.end('question ');
  const answered = await read(visitor);
  assert.ok(answered === `question ${answer}`, answered.slice(0, 100));
});

test('a guest that floods is not read while nobody reads from it', async () => {
  let sentBytes = 0;
  const port = await publish((socket) => {
    const chunk = Buffer.alloc(65_536);
    const flood = (): void => {
      while (socket.writable && socket.write(chunk, () => (sentBytes += chunk.length)));
      socket.once('drain', flood);
    };
    flood();
  });
  const visitor = visit(port).pause();
  await once(visitor, 'connect');
  // What the kernel and two streams hold on the way, and no more: it stands still.
  const still = await eventually('a flood that stands still', 20_000, async () => {
    const before = sentBytes;
    await new Promise((resolve) => setTimeout(resolve, 200));
    return before > 0 && sentBytes === before ? before : undefined;
  });
  assert.ok(still < 64 * 1024 * 1024, `${still} bytes were taken`);
  visitor.resume();
  await eventually('a flood that goes on', 10_000, () => sentBytes > still || undefined);
});

test('a guest that never reads does not fill the service', async () => {
  const port = await publish((socket) => socket.pause());
  const visitor = visit(port);
  await once(visitor, 'connect');
  const chunk = Buffer.alloc(65_536);
  let takenBytes = 0;
  while (
    takenBytes < 256 * 1024 * 1024 &&
    visitor.write(chunk, () => (takenBytes += chunk.length))
  );
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.ok(takenBytes < 64 * 1024 * 1024, `${takenBytes} bytes were taken`);
});

test('a connection that one side breaks off is broken off for the other', async () => {
  const port = await publish((socket) => socket.once('data', () => socket.resetAndDestroy()));
  const visitor = visit(port);
  visitor.write('x');
  await closed(visitor);
  const guests: Socket[] = [];
  const other = await publish((socket) => guests.push(socket));
  const rude = visit(other);
  const guest = await eventually('the guest', 10_000, () => guests[0]);
  guest.resume();
  rude.resetAndDestroy();
  await closed(guest);
});

test('nobody listening inside closes a connection at once, and many of them leave nothing', async () => {
  const port = await publish();
  for (let times = 0; times < 600; times += 1) {
    const visitor = visit(port);
    await new Promise((resolve) => visitor.once('close', resolve));
  }
});

test('so many connections and no more, until one ends', async () => {
  const guests: Socket[] = [];
  const port = await publish((socket) => {
    guests.push(socket.resume());
    socket.once('end', () => socket.end());
  });
  const visitors = Array.from({ length: 256 }, () => visit(port).resume());
  await eventually('256 guests', 20_000, () => guests.length === 256 || undefined);
  await closed(visit(port));
  assert.ok(visitors.every((one) => !one.destroyed));
  visitors[0]?.destroy();
  await eventually('room for another', 10_000, async () => {
    const next = visit(port).resume();
    return eventually('a guest or a refusal', 10_000, () => {
      if (guests.length > 256) return { welcome: true };
      return next.destroyed ? { welcome: false } : undefined;
    }).then(({ welcome }) => welcome || undefined);
  });
});

test('an address that this host does not have is a failure that names the port', async () => {
  const elsewhere = new PublishedPorts(
    '192.0.2.1',
    () => {},
    () => dialerAt(guestAddress),
  );
  const error = await rejectsWith('failed', () => elsewhere.set('ref', running, [nextPort]));
  assert.match(error.message, new RegExp(String(nextPort)));
  assert.deepEqual(elsewhere.of('ref'), []);
});

test('a low port is refused where the service may not have it', async (t) => {
  if (process.getuid?.() === 0) return t.skip('root may listen on any port');
  const options = { address: HOST, port: 1, admit: () => true };
  const none = {
    dial: dialerAt(HOST).dial,
    sharesPorts: true,
    leave: () => {},
    onProblem: () => {},
  };
  await rejectsWith('port_refused', () => PortForwarder.open({ ...options, ...none }));
});

test('a port that is only just being given up is open when the instance has started', async () => {
  const port = nextPort++;
  const former = await occupy(port);
  const started = published.setWhatIsFree('ref-late', running, [port]);
  await new Promise((resolve) => setTimeout(resolve, 30));
  await vacate(former);
  await started;
  assert.deepEqual(published.of('ref-late'), [port]);
});
