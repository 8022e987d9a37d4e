/** What a peer does below HTTP: it resets, stays, or sends half of something. None of it outlives the service or ends it. */

import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { afterEach, test } from 'node:test';
import { claimPorts } from '../support/ports.ts';
import { eventually } from '../support/waiting.ts';
import { type Served, serve } from './served.ts';

let served: Served | undefined;
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await served?.close();
  served = undefined;
});

async function start(): Promise<Served> {
  served = await serve(await claimPorts(1));
  return served;
}

/** A connection that stays open on this side, whatever the service does. */
async function open(url: string, bytes: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  sockets.push(socket);
  socket.on('error', () => undefined);
  socket.resume();
  await new Promise<void>((done) => socket.once('connect', () => done()));
  if (bytes !== '') await new Promise<void>((done) => socket.write(bytes, () => done()));
  return socket;
}

const connectionsOf = ({ app }: Served): Promise<number> =>
  new Promise((done, fail) =>
    app.server.getConnections((error, count) => (error ? fail(error) : done(count))),
  );

const refused = {
  'no HTTP': 'garbage\r\n\r\n',
  'a huge head': `GET / HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`,
  CONNECT: 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n',
};

for (const [what, bytes] of Object.entries(refused)) {
  test(`${what}: a peer that resets harms nobody`, async () => {
    const { url } = await start();
    for (let round = 0; round < 5; round++) {
      const socket = await open(url, bytes);
      if (socket.bytesRead === 0) await new Promise((done) => socket.once('data', done));
      socket.resetAndDestroy();
    }
    assert.equal((await fetch(`${url}/healthz`)).status, 200);
  });

  test(`${what}: a peer that stays is let go of`, async () => {
    const own = await start();
    for (let round = 0; round < 5; round++) await open(own.url, bytes);
    await eventually('nobody is connected', 20_000, async () =>
      (await connectionsOf(own)) === 0 ? true : undefined,
    );
  });
}

const body = 'Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"na';
const halves: Readonly<Record<string, (token: string) => string>> = {
  'no byte': () => '',
  'half a head': () => 'GET / HT',
  'half a body': (token) =>
    `POST /v1/token/create HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n${body}`,
};

for (const [what, make] of Object.entries(halves)) {
  test(`the service ends although a peer sent ${what}`, { timeout: 20_000 }, async () => {
    const own = await start();
    const taken: Socket[] = [];
    own.app.server.on('connection', (socket: Socket) => taken.push(socket));
    const bytes = make(await own.newToken());
    await open(own.url, bytes);
    await eventually('all of it was read', 20_000, async () =>
      taken[0]?.bytesRead === bytes.length ? true : undefined,
    );
    await own.close();
    served = undefined;
  });
}
