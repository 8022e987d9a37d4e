/** Which host an instance goes to, and what is refused because no host has room. Hosts are made up, the rest is real. */

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { HostCapacity, MachineSpec } from '../../src/engines/engine.ts';
import { updateInstance } from '../../src/store/instances.ts';
import { insertGrowth } from '../../src/store/placing.ts';
import { catalogOf, exampleText } from '../support/catalogs.ts';
import { claimPorts } from '../support/ports.ts';
import { eventually } from '../support/waiting.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

/** The template `notebook` is to be had on one host alone. */
const catalog = catalogOf(
  exampleText
    .replace('key: notebook', 'key: notebook\n    hosts: [m2]')
    .replace('name: a100', 'name: a100\n    hosts: [m3]'),
);

let shop: Workshop;
before(async () => {
  shop = await openWorkshop(await claimPorts(60), catalog);
});
after(() => shop.close());

/** Room for four of the smallest: 16 GB of memory. */
const host = (name: string, change: Partial<HostCapacity> = {}): HostCapacity => ({
  ...{ name, online: true, cpuCores: 100, memoryGb: 16, diskGb: 1000, gpus: [] },
  ...change,
});
const have = (...hosts: HostCapacity[]) => {
  shop.faults.capabilities = { hosts };
};

beforeEach(async () => {
  shop.faults.clear();
  const { db } = shop.store;
  for (const table of ['operations', 'snapshots', 'instances'] as const)
    await db.deleteFrom(table).execute();
});

const create = (change: Partial<typeof smallest> = {}) =>
  shop.instances.create(shop.actor, { ...smallest, ...change });
const rowOf = async (uuid: string) => (await shop.instances.get(shop.actor, uuid)).row;
const hostOf = async (uuid: string) => (await rowOf(uuid)).host;
const modify = (uuid: string, change: object) =>
  shop.instanceModify.modify(shop.actor, uuid, { addPorts: [], removePorts: [], ...change });

/** An instance that the database calls RUNNING. */
async function running(change: Partial<typeof smallest> = {}): Promise<string> {
  const { uuid } = await create(change);
  await shop.store.db.deleteFrom('operations').execute();
  await updateInstance(shop.store.db, uuid, { status: 'RUNNING' });
  return uuid;
}

const full = (words: RegExp) => ({ kind: 'no_capacity', message: words });

async function countAdmitted(pending: Promise<unknown>[]): Promise<number> {
  const outcomes = await Promise.allSettled(pending);
  for (const outcome of outcomes)
    if (outcome.status === 'rejected') assert.equal(outcome.reason.kind, 'no_capacity');
  return outcomes.filter((outcome) => outcome.status === 'fulfilled').length;
}

test('an engine that lists no hosts takes everything, and the row names none', async () => {
  have();
  const { uuid } = await create({ cpuCores: 16, diskSizeGb: 500 });
  assert.equal(await hostOf(uuid), null);
});

test('the host with the fewest instances is taken, then the first by name; none that is offline', async () => {
  have(host('m2'), host('m1'), host('m0', { online: false }));
  const places: (string | null)[] = [];
  for (let count = 0; count < 4; count++) places.push(await hostOf((await create()).uuid));
  assert.deepEqual(places, ['m1', 'm2', 'm1', 'm2']);
  have(host('m2'), host('m1', { online: false }), host('m3'));
  assert.equal(await hostOf((await create()).uuid), 'm3');
});

test('exactly as many as have room of 64 at once, and what is refused writes nothing', async () => {
  have(host('m1'), host('m2', { memoryGb: 9 }));
  const pending = Array.from({ length: 64 }, () => create());
  assert.equal(await countAdmitted(pending), 6);
  const { db } = shop.store;
  const before = await db.selectFrom('organizations').selectAll().execute();
  await assert.rejects(create(), full(/4 GB of memory \(1 free\) on the host with the most room/));
  assert.deepEqual(await db.selectFrom('organizations').selectAll().execute(), before);
  assert.equal((await db.selectFrom('instances').select('id').execute()).length, 6);
  assert.equal((await db.selectFrom('operations').select('id').execute()).length, 6);
});

test('all that is short is named, with how much is free and what to do', async () => {
  have(host('m1', { cpuCores: 1, memoryGb: 8, diskGb: 30 }));
  await create({ diskSizeGb: 20 });
  await assert.rejects(
    create({ cpuCores: 4, diskSizeGb: 20 }),
    full(
      /^There is no room for this now: it takes 4 vCPUs \(3 free\) and 16 GB of memory \(4 free\) and 20 GB of disk \(10 free\)\. Ask for less, delete instances/,
    ),
  );
});

test('a virtual machine has at most the processors of its host, however many may be promised', async () => {
  const small = host('m1', { cpuCores: 2, memoryGb: 100 });
  const large = host('m2', { cpuCores: 4, memoryGb: 100 });
  const four = { cpuCores: 4 };
  have(small);
  await create(four);
  const virtualMachines = [smallest.template];
  shop.faults.capabilities = { hosts: [small], virtualMachines };
  await assert.rejects(create(four), full(/4 processors of one host \(2 free\)/));
  await create({ cpuCores: 1 });
  shop.faults.capabilities = { hosts: [small, large], virtualMachines };
  for (let count = 0; count < 3; count++)
    assert.equal(await hostOf((await create(four)).uuid), 'm2');
});

test('the ephemeral disk takes room, too', async () => {
  have(host('m1', { memoryGb: 1000, diskGb: 100 }));
  const size = { mode: 'production', cpuCores: 2, ephemeralDiskGb: 60 };
  await create(size);
  await assert.rejects(create(size), full(/70 GB of disk \(30 free\)/));
});

test('stopped and failed instances hold what they have, deleted ones until the engine has removed them', async () => {
  have(host('m1', { memoryGb: 12 }));
  const [stopped, failed, deleted] = [await running(), await running(), await running()];
  await updateInstance(shop.store.db, stopped, { status: 'STOPPED' });
  await updateInstance(shop.store.db, failed, { status: 'UNKNOWN' });
  await assert.rejects(create(), full(/0 free/));
  await shop.instances.delete(shop.actor, deleted);
  await assert.rejects(create(), full(/0 free/), 'the engine has it still');
  await shop.settle();
  await create();
  await assert.rejects(create(), full(/0 free/));
});

test('a restore takes room like any instance, on another host than the snapshot was made on', async () => {
  have(host('m1'), host('m2', { memoryGb: 4 }));
  const { uuid } = await create();
  await shop.settle();
  await shop.snapshots.create(shop.actor, uuid, 'kept');
  await shop.settle();
  assert.equal(await hostOf(uuid), 'm1');
  const restored = await create({ template: 'kept' });
  assert.equal(await hostOf(restored.uuid), 'm2');
  await shop.settle();
  assert.equal((await rowOf(restored.uuid)).status, 'RUNNING');
  have(host('m1', { memoryGb: 7 }), host('m2', { memoryGb: 4 }));
  await assert.rejects(create({ template: 'kept' }), full(/4 GB of memory \(3 free\)/));
});

test('where there is one host everything is on it, whatever it was called before', async () => {
  have(host('old'), host('other', { online: false }));
  await create();
  have();
  await create();
  have(host('new', { memoryGb: 8 }));
  await assert.rejects(create(), full(/0 free/));
});

test('hosts that do not answer now are no lack of room: the engine is out of reach', async () => {
  have(host('m1', { online: false }), host('m2', { online: false }));
  await assert.rejects(create(), {
    kind: 'unavailable',
    message: /^No host that this may be placed on can be reached now/,
  });
});

test('a template and a GPU type may be had on some hosts alone', async () => {
  have(host('m1'), host('m2', { memoryGb: 8 }));
  for (let count = 0; count < 2; count++)
    assert.equal(await hostOf((await create({ template: 'notebook' })).uuid), 'm2');
  await assert.rejects(
    create({ template: 'notebook' }),
    full(/4 GB of memory \(0 free\)\..*fewer of them/),
  );
  assert.equal(await hostOf((await create()).uuid), 'm1');
  const a100 = { gpuType: 'a100', mode: 'production', cpuCores: 16, diskSizeGb: 100 };
  await assert.rejects(create(a100), full(/^There is no host that this may be placed on/));
});

test('the engine is told which host where there are several, and none where there is one', async () => {
  const machines = () =>
    new Set(
      shop.faults.asked
        .filter(({ method }) => method === 'create' || method === 'start')
        .map(({ parameters }) => (parameters[0] as MachineSpec).host),
    );
  have(host('m1'), host('m2', { memoryGb: 0 }));
  await create();
  await shop.settle();
  assert.deepEqual(machines(), new Set(['m1']));
  shop.faults.asked.length = 0;
  have(host('m1'));
  await create();
  await shop.settle();
  assert.deepEqual(machines(), new Set([undefined]));
});

test('growth that has no room is refused before the engine is asked; shrinking never is', async () => {
  have(host('m1', { diskGb: 30 }), host('m2'));
  const { uuid } = await create({ cpuCores: 3 });
  await shop.settle();
  shop.faults.asked.length = 0;
  const before = await rowOf(uuid);
  const more = /on the host of the instance: it takes 8 more GB of memory \(4 free\)/;
  await assert.rejects(modify(uuid, { cpuCores: 5 }), full(more));
  await assert.rejects(modify(uuid, { diskSizeGb: 31 }), full(/21 more GB of disk \(20 free\)/));
  assert.deepEqual(shop.faults.asked, []);
  assert.deepEqual(await rowOf(uuid), before);
  await modify(uuid, { cpuCores: 4, diskSizeGb: 30 });
  have(host('m1', { memoryGb: 1, diskGb: 1 }), host('m2'));
  await modify(uuid, { cpuCores: 2 });
  assert.equal((await rowOf(uuid)).memory_gb, 8);
});

test('while the engine makes one grow, another and a new one do not get its room', async () => {
  have(host('m1', { memoryGb: 12 }));
  const [one, other] = [await create(), await create()];
  await shop.settle();
  shop.faults.asked.length = 0;
  const gate = Promise.withResolvers<void>();
  shop.faults.gates.set('configure', gate.promise);
  const growing = modify(one.uuid, { cpuCores: 2 });
  const isAsked = () => shop.faults.asked.some(({ method }) => method === 'configure') || undefined;
  await eventually('the engine is asked', 30_000, isAsked);
  await assert.rejects(modify(other.uuid, { cpuCores: 2 }), full(/4 more GB of memory \(0 free\)/));
  await assert.rejects(create(), full(/4 GB of memory \(0 free\)/));
  gate.resolve();
  await growing;
  await assert.rejects(create(), full(/4 GB of memory \(0 free\)/));
});

test('what a change reserved is not counted any more when it is made, or has failed', async () => {
  have(host('m1', { memoryGb: 12 }));
  const { uuid } = await create();
  await shop.settle();
  await modify(uuid, { cpuCores: 2 });
  const { uuid: next } = await create();
  await shop.settle();
  have(host('m1', { memoryGb: 16 }));
  shop.faults.inject('configure', 1);
  await assert.rejects(modify(next, { cpuCores: 2 }), { kind: 'engine_error' });
  await create();
});

test('what a killed change reserved is free again in time', async () => {
  have(host('m1', { memoryGb: 8 }));
  const { uuid } = await create();
  const ids = { instance_id: uuid, org_id: shop.actor.orgId };
  const growth = { cpu_cores: 1, memory_gb: 4, disk_gb: 0 };
  const reservedUntil = shop.clock.nowMs + 1000;
  await insertGrowth(shop.store.db, { ...ids, ...growth, reserved_until: reservedUntil });
  await assert.rejects(create(), full(/0 free/));
  shop.clock.nowMs = reservedUntil;
  await create();
});
