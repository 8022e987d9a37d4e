/** The list of snapshots with filters and pages. Without them it is test/http/list-fast-path.test.ts's. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newOrderedId } from '../../src/domain/ids.ts';
import type { SnapshotRow } from '../../src/store/schema.ts';
import { insertSnapshot, updateSnapshot } from '../../src/store/snapshots.ts';
import { snapshots as snapshotsShape } from '../support/contract.ts';
import { sleep } from '../support/waiting.ts';
import { type Served, serve } from './served.ts';
import { newTenantToken } from './tenants.ts';

let served: Served;
let token: string;
const firstSource = newOrderedId();
const secondSource = newOrderedId();

before(async () => {
  served = await serve({ from: 28_800, to: 28_899 });
  token = await served.newToken();
  await put('a', { status: 'READY', minimum_disk_size_gb: 10, created_at: 5000 });
  await put('b', { status: 'FAILED', minimum_disk_size_gb: 20, created_at: 5900 });
  await put('c', { status: 'READY', minimum_disk_size_gb: 30, created_at: 5100 });
  await put('d', { status: 'CREATING', minimum_disk_size_gb: 40, created_at: 7000 });
  await put('e', {
    status: 'READY',
    minimum_disk_size_gb: 11,
    created_at: 8000,
    instance_id: secondSource,
  });
});
after(() => served.close());

async function put(name: string, facts: Partial<SnapshotRow>, orgId = served.shop.actor.orgId) {
  // Of one millisecond ids have no order.
  await sleep(2);
  const id = newOrderedId();
  const row = { id, org_id: orgId, engine_ref: id, instance_id: firstSource, name };
  const rest = { status: 'READY' as const, minimum_disk_size_gb: 10, created_at: 9000 };
  await insertSnapshot(served.shop.store.db, { ...row, ...rest, deleted_at: null, ...facts });
  served.shop.snapshots.changed(orgId);
  return id;
}

const ask = (query: string, headers: Record<string, string> = {}, as = token) =>
  fetch(`${served.url}/v1/snapshots/list${query}`, {
    headers: { authorization: `Bearer ${as}`, ...headers },
  });

async function names(query: string): Promise<string> {
  const response = await ask(query);
  const text = await response.text();
  assert.equal(response.status, 200, text);
  assert.equal(response.headers.get('content-type'), 'application/json; charset=utf-8');
  const listed = snapshotsShape(JSON.parse(text), query).map(({ name }) => name);
  return listed.join('');
}

const filters: readonly (readonly [string, string])[] = [
  ['', 'abcde'],
  ['?unknown=1', 'abcde'],
  ['?status=READY', 'ace'],
  ['?status=CREATING', 'd'],
  ['?name=c', 'c'],
  ['?name=nothing', ''],
  [`?instance=${firstSource}`, 'abcd'],
  [`?instance=${secondSource.toUpperCase()}`, 'e'],
  ['?instance=7', ''],
  ['?fits_gb=20', 'abe'],
  ['?fits_gb=9', ''],
  ['?status=READY&fits_gb=29', 'ae'],
  [`?status=READY&fits_gb=29&instance=${secondSource}&name=e&unknown=`, 'e'],
];
for (const [query, expected] of filters) {
  test(`the list with "${query}"`, async () => assert.equal(await names(query), expected));
}

test('an unknown parameter leaves the plain list byte for byte', async () => {
  const [plain, odd] = [await ask(''), await ask('?unknown=1')];
  assert.equal(await odd.text(), await plain.text());
  assert.equal(odd.headers.get('etag'), plain.headers.get('etag'));
  assert.equal(odd.headers.get('x-total-count'), null);
});

const nextOf = (response: Response): string | undefined => {
  const link = response.headers.get('link');
  if (link === null) return undefined;
  const target = /^<\/v1\/snapshots\/list(\?[^>]+)>; rel="next"$/.exec(link)?.[1];
  assert.ok(target, link);
  return target;
};

async function walk(first: string): Promise<{ pages: string[]; totals: (string | null)[] }> {
  const pages: string[] = [];
  const totals: (string | null)[] = [];
  for (let query: string | undefined = first; query !== undefined; ) {
    const response = await ask(query);
    totals.push(response.headers.get('x-total-count'));
    pages.push(await names(query));
    query = nextOf(response);
  }
  return { pages, totals };
}

test('pages lead to each other, in the order of the list, with the filters kept', async () => {
  assert.deepEqual((await walk('?limit=2')).pages, ['ab', 'cd', 'e']);
  assert.deepEqual((await walk('?limit=5')).pages, ['abcde']);
  assert.deepEqual((await walk('?limit=1&status=READY&fits_gb=29')).pages, ['a', 'e']);
  assert.deepEqual((await walk('?limit=2')).totals, ['5', '5', '5']);
  assert.deepEqual((await walk('?limit=1&status=READY')).totals, ['3', '3', '3']);
  assert.deepEqual((await walk('?fits_gb=20')).totals, ['3']);
});

test('a cursor stays good when what it names is deleted', async () => {
  const id = await put('f', { created_at: 9000 });
  await put('g', { created_at: 9100 });
  const next = nextOf(await ask('?limit=6'));
  assert.ok(next);
  await updateSnapshot(served.shop.store.db, id, { deleted_at: 1 });
  assert.equal(await names(next), 'g');
  const rest = await served.shop.store.db
    .selectFrom('snapshots')
    .select('id')
    .where('name', 'in', ['f', 'g'])
    .execute();
  for (const row of rest) await updateSnapshot(served.shop.store.db, row.id, { deleted_at: 1 });
  served.shop.snapshots.changed(served.shop.actor.orgId);
  assert.equal(await names(next), '');
});

const wrong: readonly (readonly [string, string])[] = [
  ['status=ready', 'status'],
  ['status=', 'status'],
  ['status=READY&status=FAILED', 'status'],
  ['name=a%20b', 'name'],
  ['instance=x', 'instance'],
  ['fits_gb=0', 'fits_gb'],
  ['fits_gb=1.5', 'fits_gb'],
  ['fits_gb=-1', 'fits_gb'],
  ['limit=0', 'limit'],
  ['limit=1001', 'limit'],
  ['limit=ten', 'limit'],
  ['after=nonsense', 'after'],
  [`after=${Buffer.from("1.' or 1=1 --").toString('base64url')}`, 'after'],
];
for (const [query, parameter] of wrong) {
  test(`?${query} is a 400 that names "${parameter}"`, async () => {
    const response = await ask(`?${query}`);
    assert.equal(response.status, 400);
    const { error, message } = (await response.json()) as { error: string; message: string };
    assert.equal(error, 'invalid_request');
    assert.ok(message.includes(`"${parameter}"`), message);
  });
}

test('a page has an ETag of its own, which changes with what stands in its headers', async () => {
  const tagOf = async (query: string) => (await ask(query)).headers.get('etag') ?? '';
  const tag = await tagOf('?limit=1');
  assert.match(tag, /^"[^"]+"$/);
  const same = await ask('?limit=1', { 'if-none-match': tag });
  assert.deepEqual([same.status, await same.text()], [304, '']);
  assert.notEqual(await tagOf('?name=a'), tag);
  const id = await put('behind', { created_at: 20_000 });
  assert.equal((await ask('?limit=1', { 'if-none-match': tag })).status, 200);
  await updateSnapshot(served.shop.store.db, id, { deleted_at: 1 });
  served.shop.snapshots.changed(served.shop.actor.orgId);
});

test("another organization's snapshots are in no filter", async () => {
  const other = await newTenantToken(served.shop);
  for (const query of ['?status=READY', '?name=a', `?instance=${firstSource}`, '?limit=10']) {
    const response = await ask(query, {}, other);
    assert.equal(await response.text(), '[]', query);
    assert.equal(response.headers.get('x-total-count'), '0', query);
  }
});

test('a 304 says nothing of a length that the list does not have', async () => {
  const etag = (await ask('')).headers.get('etag') ?? '';
  const same = await ask('', { 'if-none-match': etag });
  assert.deepEqual([same.status, same.headers.get('content-length')], [304, null]);
  assert.equal(same.headers.get('etag'), etag);
});
