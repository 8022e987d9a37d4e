/** Who is told to wait, by which of the limits, and who is not. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Callers } from '../../src/http/callers.ts';
import { RateLimiter } from '../../src/http/rate-limit.ts';
import type { ServiceContext } from '../../src/services/context.ts';
import { type Answer, ask } from '../support/http.ts';
import { claimPorts } from '../support/ports.ts';
import { type Served, serve } from './served.ts';

const list = '/v1/snapshots/list';
const limitOf = (requests: number) => ({ requests, windowSeconds: 60, sparesLocal: false });
const warnings: object[] = [];

function makeEdge({ now, log }: ServiceContext) {
  // The tests are the proxy: they say from where a request comes.
  const callers = new Callers(['127.0.0.1']);
  const limits = { token: limitOf(5), address: limitOf(12), failedAuth: limitOf(3) };
  const heard = { ...log, warn: (fields: object) => void warnings.push(fields) };
  return { callers, limiter: new RateLimiter({ limits, callers, now, log: heard }) };
}

let served: Served;
before(async () => {
  served = await serve(await claimPorts(1), makeEdge);
});
after(() => served.close());

let count = 0;
/** An address that nobody has used yet. */
const newAddress = () => `192.0.2.${++count}`;

interface Call {
  readonly path?: string;
  readonly method?: string;
  readonly from?: string;
  readonly token?: string;
  readonly headers?: Record<string, string>;
}

const call = ({ path = list, method = 'GET', from = newAddress(), token, headers }: Call) =>
  ask(served.url, {
    method,
    path,
    headers: {
      'x-forwarded-for': from,
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...headers,
    },
  });

/** A header that the fast path does not know. */
const ordinary = { 'x-ordinary': 'yes' };

async function statuses(times: number, one: () => Promise<Answer>): Promise<number[]> {
  const found: number[] = [];
  for (let index = 0; index < times; index++) found.push((await one()).status);
  return found;
}

const fieldsOf = ({ headers }: Answer) =>
  ['limit', 'remaining', 'reset'].map((name) => headers[`ratelimit-${name}`]);

const nextWindow = () => {
  served.shop.clock.nowMs += 60_000;
};

test('a token has so many requests in a window, and every answer says how many are left', async () => {
  const token = await served.newToken();
  for (const remaining of ['4', '3', '2', '1', '0']) {
    const answer = await call({ token });
    assert.equal(answer.status, 200);
    assert.deepEqual(fieldsOf(answer), ['5', remaining, '60']);
  }
  const refused = await call({ token });
  assert.equal(refused.status, 429);
  assert.deepEqual(fieldsOf(refused), ['5', '0', '60']);
  assert.equal(refused.headers['retry-after'], '60');
  assert.match(refused.text, /"error":"rate_limited"/);
  served.shop.clock.nowMs += 59_001;
  assert.equal((await call({ token })).headers['retry-after'], '1');
  served.shop.clock.nowMs += 999;
  assert.equal((await call({ token })).status, 200);
});

test('one token that has used up its requests hinders no other', async () => {
  const [busy, idle] = [await served.newToken(), await served.newToken()];
  const from = newAddress();
  assert.deepEqual(await statuses(6, () => call({ token: busy, from })), [
    ...[200, 200, 200, 200, 200],
    429,
  ]);
  assert.equal((await call({ token: idle, from })).status, 200);
});

test('both ways that answer the list count the same token and the same address', async () => {
  const token = await served.newToken();
  const seen = [
    ...(await statuses(1, () => call({ token, headers: ordinary }))),
    ...(await statuses(2, () => call({ token }))),
    ...(await statuses(2, () => call({ token, headers: ordinary }))),
    ...(await statuses(1, () => call({ token }))),
    ...(await statuses(1, () => call({ token, headers: ordinary }))),
  ];
  assert.deepEqual(seen, [200, 200, 200, 200, 200, 429, 429]);
  const from = newAddress();
  for (let index = 0; index < 3; index++) {
    const fresh = await served.newToken();
    assert.deepEqual(await statuses(4, () => call({ token: fresh, from })), [200, 200, 200, 200]);
  }
  const known = await served.newToken();
  assert.equal((await call({ token: known })).status, 200, 'now the fast path knows it');
  assert.equal((await call({ token: known, from })).status, 429);
  assert.equal((await call({ token: known })).status, 200, 'and from elsewhere it is welcome');
});

test('a refused list was not counted twice', async () => {
  const token = await served.newToken();
  const from = newAddress();
  await statuses(8, () => call({ token, from }));
  const { headers } = await call({ path: '/openapi.json', from });
  assert.equal(headers['ratelimit-remaining'], String(12 - 9));
});

test('public routes, unknown ones and paths that are none count for the address', async () => {
  const from = newAddress();
  const paths = ['/openapi.json', '/no/such/path', '/v1/instances/list/%zz', '/metrics'];
  for (let round = 0; round < 3; round++)
    for (const path of paths) assert.notEqual((await call({ path, from })).status, 429, path);
  for (const path of paths) {
    const answer = await call({ path, from });
    assert.equal(answer.status, 429, path);
    assert.equal(answer.headers['retry-after'], '60');
  }
  assert.equal((await call({ path: '/openapi.json' })).status, 200, 'others are not meant');
});

test('whoever watches the service is never refused', async () => {
  const from = newAddress();
  await statuses(13, () => call({ path: '/openapi.json', from }));
  assert.equal((await call({ path: '/openapi.json', from })).status, 429);
  for (const path of ['/healthz', '/readyz', '/healthz'])
    assert.equal((await call({ path, from })).status, 200);
  const answer = await call({ path: '/healthz', from });
  assert.deepEqual(fieldsOf(answer), [undefined, undefined, undefined]);
});

const wrong = `berth_${'0'.repeat(64)}`;

test('so many wrong tokens, and no further guess is looked at; known tokens pass', async () => {
  const [known, unknown] = [await served.newToken(), await served.newToken()];
  const from = newAddress();
  assert.equal((await call({ token: known })).status, 200);
  assert.deepEqual(await statuses(3, () => call({ token: wrong, from })), [401, 401, 401]);
  assert.equal((await call({ token: wrong, from })).status, 429);
  assert.equal((await call({ from })).status, 429, 'none at all is a wrong one');
  assert.equal((await call({ token: unknown, from })).status, 429, 'it could be the lucky guess');
  assert.equal((await call({ token: unknown })).status, 200, 'but not from elsewhere');
  assert.equal((await call({ token: known, from })).status, 200);
  served.shop.clock.nowMs += 2000;
  assert.equal((await call({ token: known, from, headers: ordinary })).status, 200);
  nextWindow();
  assert.equal((await call({ token: wrong, from })).status, 401);
});

test('guesses sent at once are counted one by one', async () => {
  const from = newAddress();
  const guesses = Array.from({ length: 10 }, (_, index) => `berth_${String(index).repeat(64)}`);
  const answers = await Promise.all(guesses.map((token) => call({ token, from })));
  assert.equal(answers.filter(({ status }) => status === 401).length, 3);
  assert.equal(answers.filter(({ status }) => status === 429).length, 7);
});

test('an IPv6 host counts as one, whatever address of its /64 it takes', async () => {
  const seen: number[] = [];
  for (let host = 1; host <= 13; host++)
    seen.push((await call({ path: '/openapi.json', from: `2001:db8:1:2::${host}` })).status);
  assert.deepEqual(seen, [...new Array(12).fill(200), 429]);
  assert.equal((await call({ path: '/openapi.json', from: '2001:db8:1:3::1' })).status, 200);
});

test('a refusal repeats the request id and leaves nothing in the audit log', async () => {
  const token = await served.newToken();
  const auditCount = async () =>
    (await served.shop.store.db.selectFrom('audit_log').select('id').execute()).length;
  const create = { path: '/v1/instances/create', method: 'POST', token };
  await statuses(5, () => call(create));
  const before = await auditCount();
  const refused = await call({ ...create, headers: { 'x-request-id': 'mine-429' } });
  assert.equal(refused.status, 429);
  assert.equal(refused.headers['x-request-id'], 'mine-429');
  assert.equal(await auditCount(), before);
});

test('a flood is one line in the log, with the address that it really came from', async () => {
  const from = newAddress();
  warnings.length = 0;
  await statuses(20, () => call({ path: '/openapi.json', from }));
  assert.deepEqual(warnings, [
    { limit: 'address', address: from, requests: 12, windowSeconds: 60 },
  ]);
});

test('a default does not count callers on this machine', async () => {
  const spared = await serve(await claimPorts(1), ({ now, log }) => {
    const callers = new Callers();
    const one = { requests: 1, windowSeconds: 60, sparesLocal: true };
    const limits = { token: one, address: one, failedAuth: one };
    return { callers, limiter: new RateLimiter({ limits, callers, now, log }) };
  });
  try {
    const headers = { authorization: `Bearer ${await spared.newToken()}` };
    for (const more of [{}, ordinary, {}, ordinary]) {
      const question = { method: 'GET', path: list, headers: { ...headers, ...more } };
      const answer = await ask(spared.url, question);
      assert.equal(answer.status, 200);
      assert.equal(answer.headers['ratelimit-limit'], undefined);
    }
  } finally {
    await spared.close();
  }
});
