/** The two ways that answer the list answer the same, and neither answers what the other would refuse. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { insertSnapshot } from '../../src/store/snapshots.ts';
import { type Served, serve } from './served.ts';

let served: Served;
before(async () => {
  served = await serve({ from: 28_200, to: 28_299 });
});
after(() => served.close());

const ask = (token: string, headers: Record<string, string> = {}) =>
  fetch(`${served.url}/v1/snapshots/list`, {
    headers: { authorization: `Bearer ${token}`, ...headers },
  });

/** An unknown header sends a request the ordinary way. */
const ordinary = (token: string) => ask(token, { 'x-ordinary': 'yes' });

async function addSnapshot(name: string): Promise<void> {
  const ids = {
    id: newId(),
    org_id: served.shop.actor.orgId,
    instance_id: 'none',
    engine_ref: newId(),
    name,
  };
  const facts = {
    status: 'READY' as const,
    minimum_disk_size_gb: 10,
    created_at: 1_763_600_000_000,
    deleted_at: null,
  };
  await insertSnapshot(served.shop.store.db, { ...ids, ...facts });
  served.shop.snapshots.changed(served.shop.actor.orgId);
}

function comparable(response: Response): unknown[] {
  const varying = new Set(['date', 'x-request-id']);
  return [response.status, [...response.headers].filter(([name]) => !varying.has(name)).sort()];
}

for (const count of [0, 3, 300]) {
  test(`with ${count} more snapshots both ways answer the same`, async () => {
    for (let number = 0; number < count; number++) await addSnapshot(`of-${count}-${number}`);
    const token = await served.newToken();
    const slow = await ordinary(token);
    const quick = await ask(token);
    assert.deepEqual(comparable(quick), comparable(slow));
    assert.equal(await quick.text(), await slow.text());
    assert.notEqual(quick.headers.get('x-request-id'), null);
  });
}

test('a change shows at once on both', async () => {
  const token = await served.newToken();
  await ask(token);
  await addSnapshot('fresh');
  for (const way of [ask, ordinary]) assert.match(await (await way(token)).text(), /"fresh"/);
});

test('a deleted token is dead at once on both', async () => {
  const token = await served.newToken();
  assert.equal((await ask(token)).status, 200);
  assert.equal((await ask(token)).status, 200);
  const row = (await served.tokens.list(served.shop.actor)).find((one) =>
    token.startsWith(one.prefix),
  );
  await served.tokens.delete(served.shop.actor, row?.name ?? '');
  for (const way of [ask, ordinary]) assert.equal((await way(token)).status, 401);
});

test('a token is recognized for a second, no longer', async () => {
  const token = await served.newToken();
  await ask(token);
  assert.ok(served.tokens.recognize(token));
  served.shop.clock.nowMs += 1001;
  assert.equal(served.tokens.recognize(token), undefined);
  assert.equal((await ask(token)).status, 200);
});

test('conditions, request ids and odd authorizations go the ordinary way', async () => {
  const token = await served.newToken();
  const etag = (await ask(token)).headers.get('etag') ?? '';
  assert.equal((await ask(token, { 'if-none-match': etag })).status, 304);
  assert.equal(
    (await ask(token, { 'x-request-id': 'mine-1' })).headers.get('x-request-id'),
    'mine-1',
  );
  for (const wrong of ['', 'x', `${token} x`, `${token}0`])
    assert.equal((await ask(wrong)).status, 401);
});
