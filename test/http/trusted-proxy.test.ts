/** Whose word about addresses is taken: only that of proxies that the operator named. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Callers } from '../../src/http/callers.ts';
import { RateLimiter } from '../../src/http/rate-limit.ts';
import type { ServiceContext } from '../../src/services/context.ts';
import { ask } from '../support/http.ts';
import { claimPorts } from '../support/ports.ts';
import { type Served, serve } from './served.ts';

const seen: object[] = [];

/** Two requests per address, so that the third says whose address was counted. */
const edgeTrusting =
  (trustedProxies: readonly string[]) =>
  ({ now, log }: ServiceContext) => {
    const callers = new Callers(trustedProxies);
    const limits = { address: { requests: 2, windowSeconds: 60, sparesLocal: false } };
    const heard = { ...log, warn: (fields: object) => void seen.push(fields) };
    return { callers, limiter: new RateLimiter({ limits, callers, now, log: heard }) };
  };

let trusting: Served;
let trustless: Served;
before(async () => {
  trusting = await serve(
    await claimPorts(1),
    edgeTrusting(['127.0.0.1', '10.0.0.0/8', 'fd00::/8']),
  );
  trustless = await serve(await claimPorts(1), edgeTrusting([]));
  trusting.app.log.level = 'silent';
});
after(async () => {
  await trusting.close();
  await trustless.close();
});

async function statusVia(served: Served, forwardedFor: string): Promise<number> {
  const headers = { 'x-forwarded-for': forwardedFor };
  return (await ask(served.url, { method: 'GET', path: '/openapi.json', headers })).status;
}

/** True when the two chains are counted as one caller. */
async function areOne(served: Served, one: string, other: string): Promise<boolean> {
  served.shop.clock.nowMs += 60_000;
  assert.equal(await statusVia(served, one), 200);
  assert.equal(await statusVia(served, one), 200);
  return (await statusVia(served, other)) === 429;
}

test('behind a trusted proxy the client is the caller, and not the proxy', async () => {
  assert.equal(await areOne(trusting, '192.0.2.1', '192.0.2.2'), false);
  assert.equal(await areOne(trusting, '192.0.2.1', '192.0.2.1'), true);
});

test('what stands before the first stranger is the invention of that stranger', async () => {
  assert.equal(await areOne(trusting, '198.51.100.1, 192.0.2.1', '198.51.100.2, 192.0.2.1'), true);
  assert.equal(await areOne(trusting, '192.0.2.1', '10.9.9.9, 192.0.2.1'), true);
});

test('a chain of trusted proxies is followed to the client', async () => {
  const chain = (client: string) => `${client}, 10.1.2.3, fd00::7`;
  assert.equal(await areOne(trusting, chain('192.0.2.1'), '192.0.2.1'), true);
  assert.equal(await areOne(trusting, chain('192.0.2.1'), chain('192.0.2.2')), false);
});

test('a port beside the address changes nothing', async () => {
  assert.equal(await areOne(trusting, '192.0.2.1:4711', '192.0.2.1:4712'), true);
  assert.equal(await areOne(trusting, '[2001:db8::1]:4711', '2001:db8::2'), true);
});

test('what is no address counts as the nearest that is one', async () => {
  for (const nonsense of ['unknown', '', '192.0.2.1.9', '<script>', '1'.repeat(4000)]) {
    assert.equal(await areOne(trusting, nonsense, '127.0.0.1'), true, nonsense);
    assert.equal(await areOne(trusting, `192.0.2.1, ${nonsense}, 10.0.0.1`, '10.0.0.1'), true);
  }
});

test('without trusted proxies a made-up address changes nothing, and the log says so once', async () => {
  seen.length = 0;
  assert.equal(await areOne(trustless, '192.0.2.1', '192.0.2.2'), true);
  assert.equal(await areOne(trustless, '127.0.0.1', '10.0.0.1'), true);
  const ignored = seen.filter((fields) => !('limit' in fields));
  assert.deepEqual(ignored, [{ address: '127.0.0.1' }]);
});

test('the fast path counts the same client as the ordinary way, and believes the same proxies', async () => {
  for (const [served, expected] of [
    [trusting, 200],
    [trustless, 429],
  ] as const) {
    served.shop.clock.nowMs += 60_000;
    const authorization = `Bearer ${await served.newToken()}`;
    const list = (from: string, more: Record<string, string> = {}) =>
      ask(served.url, {
        method: 'GET',
        path: '/v1/snapshots/list',
        headers: { authorization, 'x-forwarded-for': from, ...more },
      });
    assert.equal((await list('192.0.2.1', { 'x-ordinary': 'yes' })).status, 200);
    const quick = await list('192.0.2.1');
    assert.equal(quick.status, 200);
    assert.equal(quick.headers['ratelimit-remaining'], '0');
    assert.equal((await list('192.0.2.1')).status, 429);
    assert.equal((await list('192.0.2.2')).status, expected);
  }
});

test('the framework believes the same: what it says of protocol and host', async () => {
  const headers = { 'x-forwarded-proto': 'https', 'x-forwarded-for': '192.0.2.1' };
  for (const [served, remoteAddress, expected] of [
    [trusting, '127.0.0.1', 'https 192.0.2.1'],
    [trusting, '192.0.2.9', 'http 192.0.2.9'],
    [trustless, '127.0.0.1', 'http 127.0.0.1'],
  ] as const) {
    let said = '';
    const callers = new Callers(served === trusting ? ['127.0.0.1', '10.0.0.0/8'] : []);
    const { default: Fastify } = await import('fastify');
    const app = Fastify({ trustProxy: callers.isTrusted });
    app.get('/', async (request) => {
      said = `${request.protocol} ${request.ip}`;
      return '';
    });
    await app.inject({ url: '/', headers, remoteAddress });
    assert.equal(said, expected);
    await app.close();
  }
});
