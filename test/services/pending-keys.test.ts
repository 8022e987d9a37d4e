/** Generated keys that are to be taken back, where a guest hangs: nobody but its owner waits for it. */

import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, test } from 'node:test';
import { claimPorts } from '../support/ports.ts';
import { eventually } from '../support/waiting.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

const MOST = 16;
const FIRST_REST_MS = 4_000;
const PATIENCE_MS = 30_000;
/** No turn ends by itself within this test. */
const ENDLESS_MS = 600_000;

const shop: Workshop = await openWorkshop(await claimPorts(10));
after(() => shop.close());

const make = async (): Promise<string> => {
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  await shop.settle();
  return uuid;
};
const [hostile, other] = [await make(), await make()];
const before = await shop.engine.readKeys(other);

const add = (uuid: string) => shop.keys.add(shop.actor, uuid, { verify: false });

/** Requests that fail and leave their keys in the file. */
async function leaveKeys(uuid: string, count: number): Promise<void> {
  const leftBefore = await pendingOf(uuid);
  shop.faults.inject('addKey', count, { after: true });
  shop.faults.inject('removeKey', 2 * count);
  for (let times = 0; times < count; times += 1)
    await assert.rejects(add(uuid), { kind: 'engine_error' });
  shop.faults.clear();
  assert.equal(await pendingOf(uuid), leftBefore + count);
}

async function pendingOf(uuid: string): Promise<number> {
  const rows = await shop.store.db
    .selectFrom('instance_keys')
    .select('id')
    .where('instance_id', '=', uuid)
    .where('state', '=', 'pending')
    .execute();
  return rows.length;
}

const removalsAsked = (uuid: string) =>
  shop.faults.asked.filter(
    ({ method, parameters }) => method === 'removeKey' && parameters[0] === uuid,
  ).length;

beforeEach(() => leaveKeys(hostile, 3));
afterEach(async () => {
  shop.faults.clear();
  await shop.newKeySweeper().look();
  assert.equal((await pendingOf(hostile)) + (await pendingOf(other)), 0);
  assert.equal(await shop.engine.readKeys(other), before);
});

test('a guest that hangs has one call, and nobody else waits for it', async () => {
  await leaveKeys(other, 2);
  shop.faults.hangingGuests.add(hostile);
  const sweeper = shop.newKeySweeper(ENDLESS_MS);
  const hanging = sweeper.look();
  const gone = async () => (await pendingOf(other)) === 0 || undefined;
  await eventually('the keys of the other one are taken back', PATIENCE_MS, gone);
  await sweeper.look();
  assert.equal(removalsAsked(hostile), 1);
  shop.faults.clear();
  await hanging;
});

test('a guest that hangs is asked again after a rest that grows', async () => {
  shop.faults.hangingGuests.add(hostile);
  const sweeper = shop.newKeySweeper(100);
  const asked: number[] = [];
  for (const passedMs of [0, 0, FIRST_REST_MS, FIRST_REST_MS, FIRST_REST_MS]) {
    shop.clock.nowMs += passedMs;
    await sweeper.look();
    asked.push(removalsAsked(hostile));
  }
  assert.deepEqual(asked, [1, 1, 2, 2, 3]);
  shop.faults.clear();
  shop.clock.nowMs += 10 * FIRST_REST_MS;
  await sweeper.look();
  assert.ok((await pendingOf(hostile)) < 3);
});

test('looking after states, ports and sizes asks no guest for keys', async () => {
  shop.faults.hangingGuests.add(hostile);
  await shop.monitor.look('states');
  await shop.monitor.look();
  assert.equal(removalsAsked(hostile), 0);
});

test('an instance with many keys that are yet to be taken back gets no more', async () => {
  await leaveKeys(hostile, MOST - 3);
  assert.equal(await pendingOf(hostile), MOST);
  shop.faults.hangingGuests.add(hostile);
  await assert.rejects(add(hostile), {
    kind: 'conflict',
    message: /^16 generated keys of instance .* are still being taken back\. Try again/,
  });
  assert.equal(await pendingOf(hostile), MOST);
  shop.faults.hangingGuests.delete(hostile);
  assert.match((await add(hostile)).message, /was added/, 'one that answers again is rid of them');
  assert.equal(await pendingOf(hostile), 0);
});
