/** The two ways that answer the list answer the same, and neither answers what the other would refuse. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { allScopes } from '../../src/domain/scopes.ts';
import { openEdge } from '../../src/http/edge.ts';
import { listFastPath } from '../../src/http/list-fast-path.ts';
import { AdminTokenService } from '../../src/services/admin-tokens.ts';
import { MemberService } from '../../src/services/members.ts';
import { insertSnapshot } from '../../src/store/snapshots.ts';
import { type Answer, exchange } from '../support/http.ts';
import { type Served, serve } from './served.ts';

let served: Served;
before(async () => {
  served = await serve({ from: 28_200, to: 28_299 });
});
after(() => served.close());

const path = '/v1/snapshots/list';

/** As scripts ask: what `fetch` adds by itself would send every request the ordinary way. */
const ask = (token: string, headers: Record<string, string> = {}, url = served.url) =>
  exchange(url, {
    method: 'GET',
    path,
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

function comparable({ status, headers, text }: Answer): unknown[] {
  const { date, 'x-request-id': id, ...same } = headers;
  assert.ok(date !== undefined && id !== undefined);
  return [status, same, text];
}

/** The quick way alone: what it leaves to the ordinary one is a 599 here. */
async function askQuickWayAlone(
  token: string,
  headers: Record<string, string> = {},
): Promise<number> {
  const { tokens, shop } = served;
  const { limiter } = openEdge(shop.context.log);
  const { snapshots } = shop;
  const quickWay = listFastPath({ tokens, snapshots, limiter, statistics: undefined });
  const server = createServer((request, response) => {
    if (!quickWay(request, response)) response.writeHead(599).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const { status } = await ask(token, headers, `http://127.0.0.1:${port}`);
  server.close();
  return status;
}

for (const count of [0, 3, 300]) {
  test(`with ${count} more snapshots both ways answer the same`, async () => {
    for (let number = 0; number < count; number++) await addSnapshot(`of-${count}-${number}`);
    const token = await served.newToken();
    const slow = await ordinary(token);
    const quick = await ask(token);
    assert.deepEqual(comparable(quick), comparable(slow));
    assert.equal(await askQuickWayAlone(token), 200);
  });
}

test('a change shows at once on both', async () => {
  const token = await served.newToken();
  await ask(token);
  await addSnapshot('fresh');
  for (const way of [ask, ordinary]) assert.match((await way(token)).text, /"fresh"/);
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
  const etag = (await ask(token)).headers.etag ?? '';
  assert.equal((await ask(token, { 'if-none-match': etag })).status, 304);
  assert.equal((await ask(token, { 'x-request-id': 'mine-1' })).headers['x-request-id'], 'mine-1');
  assert.equal(await askQuickWayAlone(token), 200);
  assert.equal(await askQuickWayAlone(token, { 'if-none-match': etag }), 599);
  assert.equal(await askQuickWayAlone(token, { 'x-request-id': 'mine-1' }), 599);
  assert.equal(await askQuickWayAlone(`${token} x`), 599);
  for (const wrong of ['', 'x', `${token} x`, `${token}0`])
    assert.equal((await ask(wrong)).status, 401);
});

test('the quick way asks for the scope, and leaves the refusal to the ordinary one', async () => {
  await ask(await served.newToken());
  const admin = new AdminTokenService(served.shop.store, served.shop.context.now);
  for (const scope of allScopes) {
    const wanted = { organization: 'workshop', name: scope, scopes: [scope] };
    const { token } = await admin.create(wanted);
    await served.tokens.authenticate(token, 'test');
    const covers = scope === 'admin' || scope === 'snapshots:read';
    assert.equal(await askQuickWayAlone(token), covers ? 200 : 599, scope);
    assert.equal((await ask(token)).status, covers ? 200 : 403, scope);
  }
});

test('who may not see the list any more is not shown it the quick way', async () => {
  const { store, context, clock } = served.shop;
  const members = new MemberService(store, context.now);
  await members.add('workshop', 'leaving@example.org', 'viewer');
  const { token } = await new AdminTokenService(store, context.now).create({
    organization: 'workshop',
    name: 'leaving',
    email: 'leaving@example.org',
  });
  assert.equal((await ask(token)).status, 200);
  await members.remove('workshop', 'leaving@example.org');
  clock.nowMs += 1001;
  assert.equal(await askQuickWayAlone(token), 599);
  assert.equal((await ask(token)).status, 401);
});
