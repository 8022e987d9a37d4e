/** 403, 422 and 429 of the error table, on services of their own where settings are wanted. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, test } from 'node:test';
import { Api, checkAddedKey } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { ask } from '../support/http.ts';
import { eventuallyPasses } from '../support/waiting.ts';
import { mutations, nameOf, pathOf, withToken } from './operations.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;
const main = await house.machine();

/** A token with these scopes alone. */
async function scoped(name: string, scopes: readonly string[]): Promise<Api> {
  const token = await api.createToken(name);
  const database = new DatabaseSync(join(service.dataFolder, 'berth.db'), { timeout: 5000 });
  database.prepare('update tokens set scopes = ? where name = ?').run(JSON.stringify(scopes), name);
  database.close();
  return new Api(() => service.baseUrl, token);
}

const everyScope = [
  'instances:read',
  'instances:write',
  'keys:write',
  'snapshots:read',
  'snapshots:write',
];
/** The scope that covers an operation; undefined: any valid token, or one of several scopes. */
function scopeOf(method: string, path: string): string | undefined {
  if (/^\/v1\/(auth\/|tokens?\b|keys\/list)/.test(path)) return undefined;
  if (path.startsWith('/v1/snapshots')) return `snapshots:${method === 'GET' ? 'read' : 'write'}`;
  if (method === 'GET') return 'instances:read';
  return /add_key|keys/.test(path) ? 'keys:write' : 'instances:write';
}

for (const operation of withToken) {
  const wanted = scopeOf(operation.method, operation.path);
  if (wanted === undefined) continue;
  test(`403 forbidden: ${nameOf(operation)} with every scope but ${wanted}`, async () => {
    const name = `all but ${nameOf(operation).replaceAll(/[^A-Za-z0-9/:_-]/g, ' ')}`.slice(0, 64);
    const others = everyScope.filter((scope) => scope !== wanted);
    const client = await scoped(name.trim(), others);
    const path = pathOf(operation, main.id);
    const body = operation.example;
    const refused = await client.refused(403, operation.method, path, body ? { body } : {});
    assert.equal(refused.error, 'forbidden');
    assert.ok(refused.message.includes(wanted), refused.message);
  });
}

test('403 forbidden: GET /v1/keys/list with scopes for snapshots alone', async () => {
  const client = await scoped('of snapshots', ['snapshots:read', 'snapshots:write']);
  await client.refused(403, 'GET', '/v1/keys/list');
});

test('a token with one scope may do what it covers', async () => {
  const reader = await scoped('reads', ['snapshots:read']);
  assert.deepEqual(await reader.snapshots(), []);
  const keeper = await scoped('keeps keys', ['keys:write']);
  checkAddedKey(await keeper.call('POST', `/v1/instances/${main.id}/add_key`));
});

test('403 comes before 404: what the token may not do says nothing of what there is', async () => {
  const reader = await scoped('looks', ['instances:read']);
  for (const operation of mutations.filter((one) => one.path.includes('/instances/{id}'))) {
    const path = pathOf(operation, '987654');
    await reader.refused(403, operation.method, path);
  }
});

test('422 idempotency_mismatch: the same Idempotency-Key with another body', async () => {
  const headers = { 'idempotency-key': 'contract-1' };
  const path = `/v1/instances/${main.id}/add_key`;
  const first = await api.call('POST', path, { body: {}, headers });
  const again = await api.call('POST', path, { body: {}, headers });
  assert.deepEqual([again.status, again.text], [first.status, first.text], 'the same answer');
  const before = await api.keys(main.id);
  const refused = await api.refused(422, 'POST', path, { body: { verify: false }, headers });
  assert.equal(refused.error, 'idempotency_mismatch');
  const body = { name: 'other operation' };
  await api.refused(422, 'POST', '/v1/token/create', { body, headers });
  assert.deepEqual(await api.keys(main.id), before);
});

test('429 rate_limited: Retry-After and the RateLimit fields; over when it says', async (context) => {
  const limits = { BERTH_RATE_LIMIT_TOKEN: '6/3', BERTH_RATE_LIMIT_ADDRESS: 'off' };
  const limited = await openHouse({ environment: limits });
  context.after(() => limited.dispose());
  const ways: readonly (readonly [string, string, object?])[] = [
    ['GET', '/v1/snapshots/list'],
    ['GET', '/v1/tokens'],
    ['POST', '/v1/instances/0/add_key', {}],
  ];
  let client = 0;
  for (const [method, path, body] of ways) {
    client += 1;
    const token = (await limited.tenant(`tenant-${client}`)).token;
    const asked = () =>
      ask(limited.service.baseUrl, {
        method,
        path,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        ...(body && { body: JSON.stringify(body) }),
      });
    const answers = [];
    for (let count = 0; count < 20; count += 1) answers.push(await asked());
    const refused = answers.find((one) => one.status === 429);
    assert.ok(refused !== undefined, `${path}: ${answers.map((one) => one.status)}`);
    assert.match(refused.text, /"error":"rate_limited"/);
    const number = (name: string): number => Number(refused.headers[name]);
    assert.ok(number('retry-after') >= 1 && number('retry-after') <= 3);
    assert.deepEqual([number('ratelimit-limit'), number('ratelimit-remaining')], [6, 0]);
    assert.ok(number('ratelimit-reset') >= 1);
    const well = answers[0];
    assert.equal(well?.headers['ratelimit-limit'], '6', 'on answers that went well, too');
    await eventuallyPasses(10_000, async () => assert.notEqual((await asked()).status, 429), 500);
  }
});
