/** Servers of a cluster that fall silent: who is waited for, who is passed over, and what is sent twice. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { IncusClient } from '../../src/engines/incus/client.ts';
import { isIncusError } from '../../src/engines/incus/incus-error.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-silence-'));
const servers: Server[] = [];
const clients: IncusClient[] = [];
after(() => {
  for (const client of clients) client.close();
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  rmSync(folder, { recursive: true, force: true });
});

interface Member {
  readonly url: string;
  /** `METHOD path` of all that arrived. */
  readonly asked: string[];
}

async function openMember(answer: RequestListener): Promise<Member> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    answer(request, response);
  });
  servers.push(server);
  const socket = join(folder, `${servers.length}.socket`);
  await new Promise<void>((resolve) => {
    server.listen(socket, resolve);
  });
  return { url: `unix:${socket}`, asked };
}

/** What a cut cable looks like from here: the connection stands, and nothing comes. */
const silent: RequestListener = () => {};

const sound: RequestListener = (request, response) => {
  const body = { type: 'sync', metadata: request.url };
  response.end(JSON.stringify(body));
};

const starting: RequestListener = (_request, response) => {
  response.statusCode = 503;
  response.end(JSON.stringify({ type: 'error', error_code: 503, error: "Server isn't ready yet" }));
};

function clientOf(...members: readonly Member[]): IncusClient {
  const endpoints = members.map(({ url }) => url);
  const client = new IncusClient({ endpoints, tls: undefined, project: 'default' });
  clients.push(client);
  return client;
}

// Side by side: each of them is mostly waiting.
describe('of members that fall silent', { concurrency: true }, () => {
  test('a silent member is left after seconds, and nobody asks it again', async () => {
    const [first, second] = [await openMember(silent), await openMember(sound)];
    const client = clientOf(first, second);
    assert.equal(await client.get('/1.0/things', { timeoutMs: 15_000 }), '/1.0/things');
    const askedBefore = first.asked.length;
    assert.equal(await client.get('/1.0/more', { timeoutMs: 15_000 }), '/1.0/more');
    assert.equal(first.asked.length, askedBefore);
  });

  test('a change that a silent member may have made is made by no other', async () => {
    const [first, second] = [await openMember(silent), await openMember(sound)];
    const client = clientOf(first, second);
    const change = client.change('POST', '/1.0/things', {}, { timeoutMs: 15_000 });
    await assert.rejects(change, (error) => isIncusError(error, 'unknown_outcome'));
    assert.deepEqual(second.asked, []);
    await client.change('POST', '/1.0/others', {}, { timeoutMs: 15_000 });
    assert.deepEqual(second.asked, ['POST /1.0/others']);
  });

  test('a member that takes its time is waited for', async () => {
    const slow: RequestListener = (request, response) => {
      if (request.url === '/1.0') sound(request, response);
      else setTimeout(() => sound(request, response), 5_000);
    };
    const [first, second] = [await openMember(slow), await openMember(sound)];
    assert.equal(
      await clientOf(first, second).get('/1.0/things', { timeoutMs: 15_000 }),
      '/1.0/things',
    );
    assert.deepEqual(second.asked, []);
  });

  test('a server alone has all the time that the caller gives', async () => {
    const client = clientOf(await openMember(silent));
    const read = client.get('/1.0/things', { timeoutMs: 5_000 });
    await assert.rejects(read, (error) => isIncusError(error, 'timeout'));
  });

  test('who is there, and who is not', async () => {
    assert.equal(await clientOf(await openMember(sound)).answers(), true);
    assert.equal(await clientOf(await openMember(silent)).answers(), false);
    assert.equal(await clientOf(await openMember(starting)).answers(), false, 'not ready yet');
    const refusing: RequestListener = (_request, response) => {
      response.statusCode = 403;
      response.end('{"type":"error","error_code":403,"error":"not authorized"}');
    };
    assert.equal(await clientOf(await openMember(refusing)).answers(), true);
    assert.equal(await clientOf({ url: `unix:${folder}/nobody`, asked: [] }).answers(), false);
  });
});
