/** The contract's section 2, `GET /v1/snapshots/list`, sentence by sentence; e2e/snapshots.test.ts has more on ETags. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { openStore } from '../../src/store/database.ts';
import { insertSnapshot } from '../../src/store/snapshots.ts';
import type { Api } from '../support/client.ts';
import { snapshots } from '../support/contract.ts';
import { openHouse } from '../support/house.ts';
import { exchange } from '../support/http.ts';
import { decode } from '../support/json.ts';

const house = await openHouse();
after(() => house.dispose());
const { service } = house;
const LIST = '/v1/snapshots/list';
const FIRST_MS = 1_763_600_000_000;

interface Wanted {
  readonly name: string;
  readonly createdAtMs: number;
  readonly id?: string;
  readonly status?: 'CREATING' | 'READY' | 'FAILED';
  readonly deletedAtMs?: number;
}

/** A client of a new organization that has these snapshots, written into the store beside the running service. */
async function organization(name: string, wanted: readonly Wanted[]): Promise<Api> {
  const client = await house.tenant(name);
  const store = await openStore(`sqlite:${join(service.dataFolder, 'berth.db')}`);
  try {
    const { id: orgId } = await store.db
      .selectFrom('organizations')
      .select('id')
      .where('name', '=', name)
      .executeTakeFirstOrThrow();
    await store.transaction(async (tx) => {
      for (const one of wanted) {
        const id = one.id ?? randomUUID();
        const ids = { id, org_id: orgId, instance_id: 'none', engine_ref: id, name: one.name };
        const size = { minimum_disk_size_gb: 12, status: one.status ?? ('READY' as const) };
        const times = { created_at: one.createdAtMs, deleted_at: one.deletedAtMs ?? null };
        await insertSnapshot(tx, { ...ids, ...size, ...times });
      }
    });
  } finally {
    await store.close();
  }
  return client;
}

test('"a JSON array, possibly empty"', async () => {
  const client = await organization('empty', []);
  const answer = await client.call('GET', LIST);
  assert.deepEqual([answer.status, answer.text], [200, '[]']);
});

test('exactly the example of the contract, byte for byte', async () => {
  const id = '0199c0de-5f7a-4c3e-8a51-1d2f3a4b5c6d';
  const client = await organization('one', [{ id, name: 'before-upgrade', createdAtMs: FIRST_MS }]);
  const { text } = await client.call('GET', LIST);
  const wanted = `[{"createdAt":1763600000,"id":"${id}","minimumDiskSizeGb":12,"name":"before-upgrade","status":"READY"}]`;
  assert.equal(text, wanted);
});

test('"oldest first (creation time, then id)", by the second that is shown', async () => {
  const id = (start: string): string => `${start}99c0de-5f7a-4c3e-8a51-1d2f3a4b5c6d`;
  const client = await organization('ordered', [
    { id: id('cc'), name: 'later-in-the-second', createdAtMs: FIRST_MS + 900 },
    { id: id('dd'), name: 'earlier-in-the-second', createdAtMs: FIRST_MS + 100 },
    { id: id('ff'), name: 'oldest', createdAtMs: FIRST_MS - 5000 },
    { id: id('aa'), name: 'newest', createdAtMs: FIRST_MS + 5000 },
  ]);
  const names = (await client.snapshots()).map((one) => one.name);
  assert.deepEqual(names, ['oldest', 'later-in-the-second', 'earlier-in-the-second', 'newest']);
});

test('every status shows; what was deleted does not', async () => {
  const client = await organization('statuses', [
    { name: 'a', createdAtMs: FIRST_MS, status: 'CREATING' },
    { name: 'b', createdAtMs: FIRST_MS + 1000, status: 'FAILED' },
    { name: 'c', createdAtMs: FIRST_MS + 2000 },
    { name: 'd', createdAtMs: FIRST_MS + 3000, deletedAtMs: FIRST_MS + 4000 },
  ]);
  const found = (await client.snapshots()).map((one) => `${one.name} ${one.status}`);
  assert.deepEqual(found, ['a CREATING', 'b FAILED', 'c READY']);
});

test('"A strong ETag, and 304 on a matching If-None-Match"', async () => {
  const client = await organization('tagged', [{ name: 'a', createdAtMs: FIRST_MS }]);
  const first = await client.call('GET', LIST);
  const etag = first.headers.etag ?? '';
  assert.match(etag, /^"[\x21\x23-\x7e]+"$/, 'strong: no W/');
  for (const match of [etag, `"x", ${etag}`, '*']) {
    const answer = await client.call('GET', LIST, { headers: { 'if-none-match': match } });
    assert.deepEqual([answer.status, answer.text, answer.headers.etag], [304, '', etag]);
  }
  const other = await client.call('GET', LIST, { headers: { 'if-none-match': '"x"' } });
  assert.deepEqual([other.status, other.text], [200, first.text]);
});

const COUNT = 58_000;
const many = Array.from({ length: COUNT }, (_, index) => ({
  name: `nightly-${String(index).padStart(50, '0')}`,
  createdAtMs: FIRST_MS + index * 1000,
}));

test('"No pagination by default: the array is whole": a list of nearly 10 MB streams whole', async () => {
  const client = await organization('many', many);
  for (const round of ['encoded anew', 'at hand']) {
    const { status, headers, text } = await exchange(service.baseUrl, {
      method: 'GET',
      path: LIST,
      headers: { authorization: `Bearer ${client.token}` },
    });
    const sizeBytes = Buffer.byteLength(text);
    assert.ok(sizeBytes > 9_000_000 && sizeBytes < 10_485_760, `${sizeBytes} bytes`);
    assert.equal(status, 200, round);
    if (headers['content-length'] !== undefined) {
      assert.equal(Number(headers['content-length']), sizeBytes);
    }
    const found = decode(snapshots, text, 'list');
    assert.deepEqual(
      found.map((one) => one.name),
      many.map((one) => one.name),
    );
  }
});

test('a client that reads 10 MB slowly gets all of it, and others are answered meanwhile', async () => {
  const client = await organization('slow', many);
  const { hostname, port } = new URL(service.baseUrl);
  const headers = { authorization: `Bearer ${client.token}` };
  const read = new Promise<number>((resolve, reject) => {
    const call = request({ hostname, port, path: LIST, headers, agent: false }, (response) => {
      let sizeBytes = 0;
      response.on('data', (chunk: Buffer) => {
        sizeBytes += chunk.length;
        response.pause();
        setTimeout(() => response.resume(), 2);
      });
      response.once('end', () => resolve(sizeBytes));
      response.once('error', reject);
    });
    call.once('error', reject);
    call.end();
  });
  assert.equal((await house.api.call('GET', '/v1/auth/validate')).status, 200);
  assert.ok((await read) > 9_000_000);
});
