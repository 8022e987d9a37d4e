/** Keys that are to be taken back, where a guest hangs too: nobody but its owner waits for it. */

import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, test } from 'node:test';
import { sql } from 'kysely';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import { claimPorts } from '../support/ports.ts';
import { eventually } from '../support/waiting.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

const MOST = 16;
const FIRST_REST_MS = 4_000;
const PATIENCE_MS = 30_000;
/** No turn ends by itself within this test. */
const ENDLESS_MS = 600_000;

const shop: Workshop = await openWorkshop(await claimPorts(10));
/** Nobody listens there. */
const closed = await claimPorts(1);
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

test('an add that fails because its owner stops or deletes the instance says so, and leaves no key', async () => {
  const uuid = await make();
  const addWhile = async (change: () => Promise<unknown>, verify = false) => {
    const gate = Promise.withResolvers<void>();
    shop.faults.gates.set('addKey', gate.promise);
    if (!verify) shop.faults.inject('addKey', 1, { kind: 'timeout' });
    const added = shop.keys.add(shop.actor, uuid, { verify });
    const askedFor = () => pendingOf(uuid).then((count) => count > 0 || undefined);
    await eventually('it is on its way', PATIENCE_MS, askedFor);
    await change();
    gate.resolve();
    return added;
  };
  const stop = () => shop.instances.stop(shop.actor, uuid);
  const restart = async () => {
    await shop.settle();
    await shop.instances.start(shop.actor, uuid);
    await shop.settle();
  };
  await assert.rejects(addWhile(stop), { kind: 'conflict', message: /is STOPPING/ });
  await restart();
  const stopWhole = () => stop().then(() => shop.settle());
  await assert.rejects(addWhile(stopWhole, true), { kind: 'conflict', message: /is STOPPED/ });
  await restart();
  const remove = () => shop.instances.delete(shop.actor, uuid);
  await assert.rejects(addWhile(remove), { kind: 'not_found' });
  await shop.settle();
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
    message: /^16 keys of instance .* are still being taken back\. Try again/,
  });
  assert.equal(await pendingOf(hostile), MOST);
  shop.faults.hangingGuests.delete(hostile);
  assert.match((await add(hostile)).message, /was added/, 'one that answers again is rid of them');
  assert.equal(await pendingOf(hostile), 0);
});

/** A supplied key that lands and whose login cannot be proven; nor can its line be taken back. */
async function leaveSupplied(publicKey: string): Promise<void> {
  const { row } = await shop.instances.get(shop.actor, other);
  await movePort(closed.from);
  shop.faults.inject('removeKey', 2);
  const adding = shop.keys.add(shop.actor, other, { publicKey, verify: true });
  await assert.rejects(adding, /could not be proved/);
  shop.faults.clear();
  await movePort(row.port);
  assert.equal(await pendingOf(other), 1);
}

const movePort = (port: number | null) =>
  shop.store.db.updateTable('instances').set({ port }).where('id', '=', other).execute();

test('of a supplied key that was refused the line is taken back later, and no other', async () => {
  const publicKey = generateKeyPair('mine').publicKey.line;
  // Too old to be what is asked for.
  const { line } = await shop.engine.addKey(other, { publicKey, expiresAt: new Date(1e12) });
  await leaveSupplied(publicKey);
  assert.equal(await shop.engine.readKeys(other), `${before}${line}\n${publicKey}\n`);
  await shop.newKeySweeper().look();
  assert.equal(await pendingOf(other), 0);
  assert.equal(await shop.engine.readKeys(other), `${before}${line}\n`);
  await shop.engine.removeKey(other, { kind: 'line', line });
});

test('a database that takes no more rows is no reason to leave a line behind', async () => {
  const { db } = shop.store;
  const refusal = sql`select raise(abort, 'no more')`;
  await sql`create trigger no_more before insert on instance_keys begin ${refusal}; end`.execute(
    db,
  );
  const { line: publicKey } = generateKeyPair('mine').publicKey;
  await assert.rejects(shop.keys.add(shop.actor, other, { publicKey, verify: false }), /no more/);
  await sql`drop trigger no_more`.execute(db);
  assert.equal(await shop.engine.readKeys(other), before);
});

test('a supplied key that was refused and then added stays', async () => {
  const publicKey = generateKeyPair('mine').publicKey.line;
  await leaveSupplied(publicKey);
  const { message } = await shop.keys.add(shop.actor, other, { publicKey, verify: false });
  assert.match(message, /already/);
  assert.equal(await pendingOf(other), 0);
  await shop.newKeySweeper().look();
  assert.equal(await shop.engine.readKeys(other), `${before}${publicKey}\n`);
  await shop.engine.removeKey(other, { kind: 'line', line: publicKey });
});
