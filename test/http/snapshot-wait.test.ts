/** `Prefer: wait=N`: the list answers when it changes. Waits are long here and what ends them is the test. */

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { newOrderedId } from '../../src/domain/ids.ts';
import type { SnapshotWatch } from '../../src/services/snapshot-watch.ts';
import { insertSnapshot, updateSnapshot } from '../../src/store/snapshots.ts';
import { eventually } from '../support/waiting.ts';
import { type Served, serve } from './served.ts';
import { newScopedToken } from './tenants.ts';

/** Long enough that an answer before it was not caused by it. */
const patience = 'wait=60';
const limitMs = 15_000;

let served: Served;
let token: string;
before(async () => {
  served = await serve({ from: 28_900, to: 28_999 });
  token = await served.newToken();
});
after(() => served.close());

/** `told`: as the service itself does it, which tells of it; otherwise as another node would. */
async function put(name: string, { told = true } = {}): Promise<string> {
  const id = newOrderedId();
  await insertSnapshot(served.shop.store.db, {
    ...{ id, org_id: served.shop.actor.orgId, instance_id: 'none', engine_ref: id, name },
    ...{ status: 'CREATING', minimum_disk_size_gb: 10, created_at: Date.now(), deleted_at: null },
  });
  if (told) served.shop.snapshots.changed(served.shop.actor.orgId);
  return id;
}

const ask = (query: string, headers: Record<string, string>, signal?: AbortSignal, as = token) =>
  fetch(`${served.url}/v1/snapshots/list${query}`, {
    headers: { authorization: `Bearer ${as}`, ...headers },
    signal: signal ?? AbortSignal.timeout(limitMs),
  });

const watch = (): SnapshotWatch => served.snapshotList.watch;
const waiting = () => watch().waiting(served.shop.actor.orgId);
const untilWaiting = (count: number) =>
  eventually(`${count} waiting`, limitMs, () => (waiting() === count ? true : undefined));

test('a change answers whoever waits, with the new list', async () => {
  const waits = [ask('', { prefer: patience }), ask('?status=CREATING', { prefer: patience })];
  await untilWaiting(2);
  await put('one');
  for (const response of await Promise.all(waits)) {
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('preference-applied'), patience);
    assert.match(await response.text(), /"one"/);
  }
  await untilWaiting(0);
});

test('a list that is another one already is answered at once', async () => {
  const response = await ask('', { prefer: patience, 'if-none-match': '"old"' });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('preference-applied'), patience);
});

test('whoever holds the list gets the next one; when none comes, a 304', async () => {
  const etag = (await ask('', {})).headers.get('etag') ?? '';
  const unchanged = await ask('', { prefer: 'wait=1', 'if-none-match': etag });
  assert.deepEqual([unchanged.status, await unchanged.text()], [304, '']);
  assert.equal(unchanged.headers.get('preference-applied'), 'wait=1');
  const wait = ask('', { prefer: `respond-async, ${patience}`, 'if-none-match': etag });
  await untilWaiting(1);
  await put('two');
  const changed = await wait;
  assert.equal(changed.status, 200);
  assert.notEqual(changed.headers.get('etag'), etag);
});

test('without If-None-Match the list comes in any case', async () => {
  const response = await ask('', { prefer: 'wait=1' });
  assert.equal(response.status, 200);
  assert.match(await response.text(), /"two"/);
});

test('a change that the filters do not let through goes by', async () => {
  const id = await put('filtered');
  const controller = new AbortController();
  const wait = ask('?name=filtered', { prefer: patience }, controller.signal);
  await untilWaiting(1);
  await put('another');
  await updateSnapshot(served.shop.store.db, id, { status: 'READY' });
  served.shop.snapshots.changed(served.shop.actor.orgId);
  const text = await (await wait).text();
  assert.match(text, /"READY"/);
});

test('what another node changes is seen too: made, changed, deleted', async () => {
  const { db } = served.shop.store;
  let id = '';
  const changes = [
    async () => {
      id = await put('elsewhere', { told: false });
    },
    () => updateSnapshot(db, id, { status: 'READY' }),
    () => updateSnapshot(db, id, { minimum_disk_size_gb: 3 }),
    () => updateSnapshot(db, id, { deleted_at: 1 }),
  ];
  for (const change of changes) {
    const wait = ask('', { prefer: patience });
    await untilWaiting(1);
    await change();
    assert.equal((await wait).status, 200);
  }
});

test('preferences that cannot be read, and wait=0, do not hold the answer', async () => {
  for (const prefer of ['wait', 'wait=soon', 'wait=-1', 'await=60', 'wait=0', '']) {
    const response = await ask('', { prefer });
    assert.equal(response.status, 200, prefer);
    assert.equal(response.headers.get('preference-applied'), null, prefer);
  }
});

test('more than 60 seconds are 60', async () => {
  const response = await ask('', { prefer: 'Wait = "3600"; x=y', 'if-none-match': '"old"' });
  assert.equal(response.headers.get('preference-applied'), 'wait=60');
});

test('whoever hangs up waits no more', async () => {
  const call = request(`${served.url}/v1/snapshots/list`, {
    headers: { authorization: `Bearer ${token}`, prefer: patience },
  });
  call.on('error', () => undefined);
  call.end();
  await untilWaiting(1);
  call.destroy();
  await untilWaiting(0);
});

test('a token that is deleted while it waits is a 401', async () => {
  const short = await newScopedToken(served.shop, ['snapshots:read']);
  const wait = ask('', { prefer: patience }, undefined, short);
  await untilWaiting(1);
  const [row] = (await served.tokens.list(served.shop.actor)).filter(({ prefix }) =>
    short.startsWith(prefix),
  );
  await served.tokens.delete(served.shop.actor, row?.name ?? '');
  const response = await wait;
  assert.equal(response.status, 401);
  assert.doesNotMatch(await response.text(), /"one"/);
});

test('the hundred-and-first does not wait', async () => {
  const controller = new AbortController();
  const waits = Array.from({ length: 100 }, () =>
    ask('', { prefer: patience }, controller.signal).catch(() => undefined),
  );
  await untilWaiting(100);
  const response = await ask('', { prefer: patience });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('preference-applied'), null);
  controller.abort();
  await Promise.all(waits);
  await untilWaiting(0);
});

test('the service answers whoever waits before it ends', async () => {
  const other = await serve({ from: 28_900, to: 28_999 });
  const theirs = await other.newToken();
  const wait = fetch(`${other.url}/v1/snapshots/list`, {
    headers: { authorization: `Bearer ${theirs}`, prefer: patience },
    signal: AbortSignal.timeout(limitMs),
  });
  const { orgId } = other.shop.actor;
  await eventually('waiting', limitMs, () =>
    other.snapshotList.watch.waiting(orgId) === 1 ? true : undefined,
  );
  const closing = other.close();
  const response = await wait;
  assert.deepEqual([response.status, await response.text()], [200, '[]']);
  await closing;
});
