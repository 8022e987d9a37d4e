/**
 * "What belongs to another organization does not exist: 404, the same body and the same timing class as for an id
 * never issued", for every operation that names a resource; and the audit log: "Every mutating operation is recorded".
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { makeKeyPair } from '../support/keys.ts';
import { eventuallyPasses } from '../support/waiting.ts';
import { addedSavedKey } from './answers.ts';
import { nameOf, pathOf, wantedInstance, withId } from './operations.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;
const stranger = await house.tenant('stranger');
const main = await house.machine();
await api.createSnapshot(main.id, 'mine');
const snapshot = await api.snapshotReady('mine');
const book = await makeKeyPair(house.keyFolder);

/** Status, body and what headers say, with the id taken out. */
async function seen(method: string, path: string, id: string): Promise<string> {
  const { status, text, headers } = await stranger.call(method, path);
  const { date, 'x-request-id': _requestId, ...others } = headers;
  const kept = Object.entries(others).filter(([name]) => !name.startsWith('ratelimit'));
  assert.ok(date !== undefined);
  const same = kept.filter(([name]) => name !== 'content-length');
  return JSON.stringify([status, text.replaceAll(`\\"${id}\\"`, '<id>'), same]);
}

for (const operation of withId) {
  test(`${nameOf(operation)} of another organization is as of an id never issued`, async () => {
    for (const [theirs, never] of [
      [main.uuid, randomUUID()],
      [snapshot.id, randomUUID()],
      [main.id, '987654'],
    ] as const) {
      const foreign = await seen(operation.method, pathOf(operation, theirs), theirs);
      assert.match(foreign, /^\[404,/);
      assert.equal(foreign, await seen(operation.method, pathOf(operation, never), never));
    }
  });
}

test('GET of a foreign instance takes as long as of one never issued', async () => {
  const times: Record<string, number[]> = { [main.uuid]: [], [randomUUID()]: [] };
  for (let round = 0; round < 60; round += 1) {
    for (const [id, taken] of Object.entries(times)) {
      const before = performance.now();
      await stranger.call('GET', `/v1/instances/${id}`);
      taken.push(performance.now() - before);
    }
  }
  const [theirs = 0, never = 0] = Object.values(times).map((all) => all.sort((a, b) => a - b)[30]);
  // A class, not a measurement: something that looks further would be several times slower.
  assert.ok(theirs < never * 4 + 2 && never < theirs * 4 + 2, `${theirs} and ${never} ms`);
});

test("another organization's key in the address book is a 404", async () => {
  const body = { name: 'mine', public_key: book.publicKey };
  const { key } = await api.expect(200, addedSavedKey, 'POST', '/v1/keys/add', { body });
  const never = key.id.replaceAll(/[0-9a-f]/g, '7');
  assert.equal(
    await seen('DELETE', `/v1/keys/${key.id}`, key.id),
    await seen('DELETE', `/v1/keys/${never}`, never),
  );
  assert.equal((await stranger.call('GET', '/v1/keys/list')).text, '[]');
});

const AUDITED = [
  ...['instance.create', 'instance.stop', 'instance.start', 'instance.modify', 'key.add'],
  ...['snapshot.create', 'snapshot.delete', 'token.create', 'token.delete', 'key_book.add'],
];

function auditLines(): Record<string, unknown>[] {
  const database = new DatabaseSync(join(service.dataFolder, 'berth.db'), { readOnly: true });
  try {
    return database.prepare('select * from audit_log').all();
  } finally {
    database.close();
  }
}

test('every mutating operation is recorded: when, which token, which organization, what, the outcome', async () => {
  const uuid = main.uuid;
  await api.addKey(uuid);
  await api.createToken('audited');
  await api.deleteToken('audited');
  await api.stopInstance(uuid);
  await api.reach(uuid, 'STOPPED', ['STOPPING']);
  await api.startInstance(uuid);
  await api.reach(uuid, 'RUNNING', ['STARTING']);
  await api.call('POST', `/v1/instances/${uuid}/modify`, { body: { mode: 'production' } });
  await api.refused(400, 'POST', '/v1/instances/create', { body: { ...wantedInstance, mode: 1 } });
  await api.deleteSnapshot(snapshot.id);
  await eventuallyPasses(5000, () => {
    const lines = auditLines();
    const missing = AUDITED.filter((action) => !lines.some((line) => line.action === action));
    assert.deepEqual(missing, []);
    assert.ok(lines.some((line) => line.outcome === 'refused 400' && line.token_id !== null));
    assert.ok(lines.every((line) => Number(line.at) > 0 && line.org_id !== null && line.outcome));
    assert.doesNotMatch(JSON.stringify(lines), /PRIVATE KEY|AAAAC3Nza/, 'never key material');
  });
});
