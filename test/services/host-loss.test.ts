/** A host that does not answer, and other ways for the engine to lose sight of instances. On the real engine and store. */

import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { InstanceConfiguration } from '../../src/services/instance-configuration.ts';
import { Monitor } from '../../src/services/monitor.ts';
import { enqueue } from '../../src/services/operations.ts';
import { findStrays } from '../../src/services/strays.ts';
import { updateInstance } from '../../src/store/instances.ts';
import { claimPorts } from '../support/ports.ts';
import { eventually } from '../support/waiting.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

const shop: Workshop = await openWorkshop(await claimPorts(40));
after(() => shop.close());

/** What was told to the operator. */
const told: { readonly fields: object; readonly message: string }[] = [];
const tell = (fields: object, message: string) => void told.push({ fields, message });
const context = { ...shop.context, log: { info: tell, warn: tell, error: tell } };
const configuration = new InstanceConfiguration(context);
const snapshotsChanged = (orgId: string) => shop.snapshots.changed(orgId);
const watching = { context, configuration, poke: () => {}, snapshotsChanged };
const newMonitor = (engineDeadlineMs = 30_000) => new Monitor({ ...watching, engineDeadlineMs });
let monitor: Monitor;

const make = async (): Promise<string> => {
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  await shop.settle();
  return uuid;
};
const [running, stopped, elsewhere] = [await make(), await make(), await make()];
await shop.instances.stop(shop.actor, stopped);
await shop.settle();

const rowOf = async (uuid: string) => (await shop.instances.get(shop.actor, uuid)).row;
const statuses = async () =>
  Promise.all([running, stopped, elsewhere].map(async (uuid) => (await rowOf(uuid)).status));
const asItWas = ['RUNNING', 'STOPPED', 'RUNNING'];
const unreachable = (...lost: string[]) => {
  shop.faults.facts = (ref, facts) =>
    lost.includes(ref) ? { state: 'unreachable', host: 'm2' } : facts;
};
const vanished = (...lost: string[]) => {
  shop.faults.facts = (ref, facts) => (lost.includes(ref) ? undefined : facts);
};

beforeEach(async () => {
  shop.faults.clear();
  monitor = newMonitor();
  await monitor.look();
  await shop.settle();
  assert.deepEqual(await statuses(), asItWas);
  told.length = 0;
});

test('a host that does not answer: its instances are UNKNOWN at the next look, and come back by themselves', async () => {
  const before = await rowOf(running);
  unreachable(running, stopped);
  await monitor.look();
  assert.deepEqual(await statuses(), ['UNKNOWN', 'UNKNOWN', 'RUNNING']);
  const lost = await rowOf(running);
  assert.match(lost.failure ?? '', /^The host of this instance does not answer\./);
  assert.deepEqual([lost.ip, lost.port], [null, null]);
  await monitor.look();
  assert.equal(told.filter(({ message }) => /host of an instance/.test(message)).length, 2, 'once');

  shop.faults.clear();
  await monitor.look();
  assert.deepEqual(await statuses(), asItWas);
  const back = await rowOf(running);
  assert.deepEqual(
    [back.failure, back.status_before, back.ip, back.port],
    [null, null, before.ip, before.port],
  );
});

test('what is asked of its instances meanwhile is refused at once with the reason', async () => {
  unreachable(running);
  await monitor.look();
  shop.faults.asked.length = 0;
  const refused = {
    kind: 'conflict',
    message: /^Instance 0 is UNKNOWN\. The host of this instance does not answer\./,
  };
  const change = { addPorts: [], removePorts: [], cpuCores: 2 };
  await assert.rejects(shop.keys.add(shop.actor, running, { verify: false }), refused);
  await assert.rejects(shop.instanceModify.modify(shop.actor, running, change), refused);
  await assert.rejects(shop.instances.start(shop.actor, running), refused);
  await assert.rejects(shop.instances.stop(shop.actor, running), refused);
  await assert.rejects(shop.snapshots.create(shop.actor, running, 'lost'), refused);
  assert.deepEqual(shop.faults.asked, []);
});

test('an instance whose host came back without it running is started again, with its settings', async () => {
  unreachable(running);
  await monitor.look();
  await shop.engine.stop(running);
  shop.faults.clear();
  await monitor.look();
  assert.equal((await rowOf(running)).status, 'STARTING');
  await shop.settle();
  assert.equal((await rowOf(running)).status, 'RUNNING');
  shop.faults.asked.length = 0;
  unreachable(running);
  await monitor.look();
  shop.faults.clear();
  await monitor.look();
  await monitor.look();
  const configured = shop.faults.asked.filter(({ method }) => method === 'configure');
  assert.equal(configured.length, 1, 'the host may have forgotten');
});

test('one that should be stopped and was started by its host is stopped', async () => {
  unreachable(stopped);
  await monitor.look();
  shop.faults.facts = (ref, facts) => (ref === stopped ? { state: 'running' } : facts);
  await monitor.look();
  assert.equal((await rowOf(stopped)).status, 'STOPPING');
});

test('deleting is accepted meanwhile, and done when the host is back', async () => {
  const uuid = await make();
  unreachable(uuid);
  await monitor.look();
  shop.faults.inject('stop', 3, { kind: 'unavailable' });
  await shop.instances.delete(shop.actor, uuid);
  await assert.rejects(shop.instances.get(shop.actor, uuid), { kind: 'not_found' });
  await shop.worker.runOnce();
  await monitor.look();
  assert.notEqual(await shop.engine.inspect(uuid), undefined);
  shop.faults.clear();
  await monitor.look();
  await shop.settle();
  assert.equal(await shop.engine.inspect(uuid), undefined);
});

test('what vanished comes back when the engine has it again, and says what it is until then', async () => {
  vanished(running);
  await monitor.look();
  assert.match((await rowOf(running)).failure ?? '', /^This instance is gone/);
  unreachable(running);
  await monitor.look();
  assert.match((await rowOf(running)).failure ?? '', /does not answer/);
  vanished(running);
  await monitor.look();
  const row = await rowOf(running);
  assert.match(row.failure ?? '', /is gone/);
  assert.equal(row.status_before, 'RUNNING');
});

test('what an engine that cannot see everything leaves out is as it was', async () => {
  await shop.snapshots.create(shop.actor, running, 'unseen');
  await shop.settle();
  await monitor.look();
  vanished(running, stopped);
  shop.faults.incomplete = true;
  await monitor.look();
  await monitor.look();
  assert.deepEqual(await statuses(), asItWas);
  const { body } = await shop.snapshots.list(shop.actor);
  assert.match(body.toString(), /"READY"/);
  unreachable(elsewhere);
  await monitor.look();
  assert.deepEqual(await statuses(), ['RUNNING', 'STOPPED', 'UNKNOWN'], 'what it says counts');
});

test('what failed for good stays UNKNOWN, whatever the engine has', async () => {
  const uuid = await make();
  await updateInstance(shop.store.db, uuid, { status: 'UNKNOWN', failure: 'It failed.' });
  await monitor.look();
  unreachable(uuid);
  await monitor.look();
  shop.faults.clear();
  await monitor.look();
  const row = await rowOf(uuid);
  assert.deepEqual([row.status, row.failure], ['UNKNOWN', 'It failed.']);
  await shop.instances.delete(shop.actor, uuid);
  await shop.settle();
});

test('an engine that is away changes nothing', async () => {
  shop.faults.inject('inventory', 2, { kind: 'unavailable' });
  await monitor.look();
  await monitor.look();
  assert.deepEqual(await statuses(), asItWas);
});

test('an engine that hangs ends the look, and changes nothing', async () => {
  monitor = newMonitor(100);
  shop.faults.hanging.add('inventory');
  await monitor.look();
  assert.deepEqual(await statuses(), asItWas);
});

test('an instance whose settings hang keeps nobody from being looked at', async () => {
  unreachable(running);
  await monitor.look();
  monitor = newMonitor(2_000);
  shop.faults.clear();
  shop.faults.hanging.add('configure');
  await monitor.look();
  assert.ok(shop.faults.asked.some(({ method }) => method === 'configure'));
  unreachable(elsewhere);
  await monitor.look();
  assert.deepEqual(await statuses(), ['RUNNING', 'STOPPED', 'UNKNOWN']);
  const gaveUp = () => told.some(({ message }) => /brought to its settings/.test(message));
  assert.ok(!gaveUp(), 'it hangs still');
  await eventually('it is given up', 30_000, () => gaveUp() || undefined);
});

test('one that runs and has no address is started, which gives it one', async () => {
  unreachable(running);
  await monitor.look();
  shop.faults.facts = (ref, facts) => (ref === running ? { state: 'running' } : facts);
  await monitor.look();
  assert.equal((await rowOf(running)).status, 'STARTING');
  await shop.settle();
  assert.notEqual((await rowOf(running)).port, null);
});

test('one that runs and lost its SSH port has it published again', async () => {
  const configured = () => shop.faults.asked.some(({ method }) => method === 'configure');
  shop.faults.clear();
  await monitor.look();
  assert.ok(!configured(), 'nothing is amiss');
  shop.faults.facts = (ref, facts) => (ref === running ? { state: 'running' } : facts);
  await monitor.look();
  assert.ok(configured());
  assert.deepEqual(await statuses(), asItWas);
});

test('one that ran at the last look is not started over the head of whoever stops it', async () => {
  for (const [unsettled, status] of [
    [true, 'RUNNING'],
    [false, 'STARTING'],
  ] as const) {
    const stopped = { state: 'stopped', unsettled } as const;
    shop.faults.facts = (ref, facts) => (ref === running ? stopped : facts);
    await monitor.look();
    assert.equal((await rowOf(running)).status, status);
  }
  await shop.settle();
});

test('an instance that cannot be set right keeps nobody else from it', async () => {
  const { now, store } = shop.context;
  const ids = { orgId: shop.actor.orgId, subjectId: running, lockId: running };
  const operation = { ...ids, kind: 'snapshot.create', tokenId: undefined, now: now() };
  await store.transaction((tx) => enqueue(tx, operation, 1));
  shop.faults.facts = (ref, facts) => (ref === running ? { state: 'stopped' } : facts);
  const lost = shop.faults.facts;
  shop.faults.facts = (ref, facts) =>
    ref === elsewhere ? { state: 'unreachable' } : lost(ref, facts);
  await monitor.look();
  assert.deepEqual(await statuses(), ['RUNNING', 'STOPPED', 'UNKNOWN']);
  await store.db.deleteFrom('operations').where('finished_at', 'is', null).execute();
});

test('the host that the engine says an instance is on is written down', async () => {
  shop.faults.facts = (ref, facts) => (ref === running ? { ...facts, host: 'm7' } : facts);
  await monitor.look();
  assert.equal((await rowOf(running)).host, 'm7');
  assert.equal((await rowOf(elsewhere)).host, null);
});

test('what the database does not know is told once, after two looks, and left alone', async () => {
  const uuid = await make();
  await monitor.look();
  await shop.store.db.deleteFrom('instances').where('id', '=', uuid).execute();
  monitor = newMonitor();
  await monitor.look();
  assert.deepEqual(strayNotices(), [], 'it may have been deleted a moment ago');
  await monitor.look();
  await monitor.look();
  assert.deepEqual(strayNotices(), [{ kind: 'instance', ref: uuid }]);
  assert.notEqual(await shop.engine.inspect(uuid), undefined);
  const strays = await findStrays(shop.store.db, await shop.engine.inventory());
  assert.deepEqual(strays, [{ kind: 'instance', ref: uuid }]);
  await shop.engine.delete(uuid);
});

const strayNotices = () =>
  told.filter(({ message }) => /does not know/.test(message)).map(({ fields }) => fields);
