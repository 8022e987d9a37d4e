/** Whose the GPUs are. Cards are made up, the rest is real: the sandbox engine is told of them and attaches nothing. */

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { GpuDevice, MachineSpec } from '../../src/engines/engine.ts';
import { CatalogService } from '../../src/services/catalog.ts';
import { updateInstance } from '../../src/store/instances.ts';
import { catalogOf, exampleText } from '../support/catalogs.ts';
import { claimPorts } from '../support/ports.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

const part = (digit: number) => `MIG-${String(digit).repeat(8)}-0000-0000-0000-000000000000`;
/** The a100 of the example, whatever a host has of it; parts of one card, and another card by its address. */
const example = exampleText.replace(/(name: a100[\s\S]*?attach:) none/, '$1 physical');
const a100 = /^ {2}- name: a100[\s\S]*?(?=\n# Per hour)/m.exec(example)?.[0] ?? '';
const slice = a100
  .replace('name: a100', 'name: slice')
  .replace(
    'attach: physical',
    `attach: mig\n    devices:\n      - { host: m1, pci: "0000:01:00.0", mig_uuid: ${part(1)} }\n      - { pci: "0000:01:00.0", mig_uuid: ${part(2).replace('MIG-', '')} }`,
  );
const listed = a100
  .replace('name: a100', 'name: t4')
  .replace('attach: physical', 'attach: physical\n    devices: [{ pci: "0000:0A:00.0" }]');
const catalog = catalogOf(example.replace(a100, [a100, slice, listed].join('\n')));

let shop: Workshop;
before(async () => {
  shop = await openWorkshop(await claimPorts(60), catalog);
});
after(() => shop.close());

const card = (pci: string): GpuDevice => ({ attach: 'physical', pci });
const room = { online: true, cpuCores: 1000, memoryGb: 100_000, diskGb: 100_000 };
function have(hosts: Readonly<Record<string, readonly GpuDevice[]>>): void {
  shop.faults.capabilities = {
    attaches: ['physical', 'mig'],
    hosts: Object.entries(hosts).map(([name, gpus]) => ({ name, ...room, gpus })),
  };
}

beforeEach(async () => {
  shop.faults.clear();
  const { db } = shop.store;
  for (const table of ['operations', 'instances'] as const) await db.deleteFrom(table).execute();
});

const wanted = {
  ...{ ...smallest, gpuType: 'a100', mode: 'production' },
  ...{ cpuCores: 16, diskSizeGb: 100 },
};
const create = (change: Partial<typeof smallest> = {}) =>
  shop.instances.create(shop.actor, { ...wanted, ...change });
const modify = (uuid: string, change: object) =>
  shop.instanceModify.modify(shop.actor, uuid, { addPorts: [], removePorts: [], ...change });

/** Everybody's GPUs, by instance: `host pci` or `host pci part`, `?` for what is only reserved. */
async function owned(uuid: string): Promise<string[]> {
  const rows = await shop.store.db.selectFrom('gpu_allocations').selectAll().execute();
  return rows
    .filter((row) => row.instance_id === uuid)
    .map(({ host, pci, mig_uuid, reserved_until }) =>
      [host, pci, mig_uuid, reserved_until === null ? '' : '?'].filter(Boolean).join(' '),
    )
    .sort();
}

/** What the engine was told to attach last, by this method. */
const attached = (method: 'create' | 'start' | 'configure') =>
  (shop.faults.asked.findLast((one) => one.method === method)?.parameters[0] as MachineSpec)?.gpus;

const short = (asked: number, type: string, free: number) => ({
  kind: 'no_capacity',
  message: new RegExp(`it takes ${asked} GPUs? of the type "${type}" \\(${free} free\\)`),
});

test('exactly as many as there are of 32 at once, each its own, and the engine is told which', async () => {
  have({ m1: [card('0000:01:00.0'), card('0000:0A:00.0')], m2: [card('0000:01:00.0')] });
  const outcomes = await Promise.allSettled(Array.from({ length: 32 }, () => create()));
  const made = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value.uuid] : []));
  assert.equal(made.length, 3);
  for (const one of outcomes)
    if (one.status === 'rejected') assert.equal(one.reason.kind, 'no_capacity');
  const all = (await Promise.all(made.map(owned))).flat().sort();
  assert.deepEqual(all, ['m1 0000:01:00.0', 'm1 0000:0a:00.0', 'm2 0000:01:00.0']);
  await assert.rejects(create({ numGpus: 2 }), short(2, 'a100', 0));
  await shop.settle();
  const told = shop.faults.asked.filter(({ method }) => method === 'create');
  const machines = told.map(({ parameters }) => parameters[0] as MachineSpec);
  assert.deepEqual(
    new Set(machines.flatMap(({ host, gpus }) => gpus.map(({ pci }) => `${host} ${pci}`))),
    new Set(all),
  );
});

test('several of one instance are on one host', async () => {
  have({ m1: [card('0000:01:00.0')], m2: [card('0000:01:00.0'), card('0000:02:00.0')] });
  const { uuid } = await create({ numGpus: 2 });
  assert.deepEqual(await owned(uuid), ['m2 0000:01:00.0', 'm2 0000:02:00.0']);
  await assert.rejects(create({ numGpus: 2 }), short(2, 'a100', 1));
});

test('a GPU is free again when the engine has deleted its instance, and not before', async () => {
  have({ m1: [card('0000:01:00.0')] });
  const { uuid } = await create();
  await shop.settle();
  await shop.instances.delete(shop.actor, uuid);
  await assert.rejects(create(), short(1, 'a100', 0));
  await shop.settle();
  await create();
});

test('a card that somebody has whole has no parts left, and the other way round', async () => {
  have({ m1: [card('0000:01:00.0')] });
  const { uuid } = await create();
  await assert.rejects(create({ gpuType: 'slice' }), short(1, 'slice', 0));
  await shop.settle();
  await shop.instances.delete(shop.actor, uuid);
  await shop.settle();
  const [one, two] = [await create({ gpuType: 'slice' }), await create({ gpuType: 'SLICE' })];
  assert.deepEqual(await owned(one.uuid), [`m1 0000:01:00.0 ${part(1)}`]);
  assert.deepEqual(await owned(two.uuid), [`m1 0000:01:00.0 ${part(2)}`]);
  await assert.rejects(create(), short(1, 'a100', 0));
  await shop.settle();
  const gpus = [{ attach: 'mig', pci: '0000:01:00.0', migUuid: part(2) }];
  assert.ok(shop.faults.asked.some(({ parameters: [machine] }) => isWith(machine, gpus)));
});

const isWith = (machine: unknown, gpus: readonly GpuDevice[]): boolean =>
  JSON.stringify((machine as MachineSpec | undefined)?.gpus) === JSON.stringify(gpus);

test('listed devices count where the host has the card, and for their host alone', async () => {
  have({ m1: [card('0000:01:00.0')], m2: [card('0000:01:00.0'), card('0000:0a:00.0')] });
  assert.deepEqual(await owned((await create({ gpuType: 't4' })).uuid), ['m2 0000:0a:00.0']);
  await assert.rejects(create({ gpuType: 't4' }), short(1, 't4', 0));
  have({ m2: [card('0000:01:00.0')] });
  const { uuid } = await create({ gpuType: 'slice' });
  assert.deepEqual(await owned(uuid), [`m2 0000:01:00.0 ${part(2)}`]);
});

test('modify: more, fewer, another type and none, each told to the engine before it is written', async () => {
  const cards = ['0000:01:00.0', '0000:02:00.0', '0000:0a:00.0'].map(card);
  have({ m1: cards, m2: cards });
  const { uuid } = await create();
  await shop.settle();
  await modify(uuid, { numGpus: 2 });
  assert.deepEqual(await owned(uuid), ['m1 0000:01:00.0', 'm1 0000:02:00.0']);
  assert.deepEqual(attached('configure'), cards.slice(0, 2));
  await assert.rejects(modify(uuid, { numGpus: 4 }), short(4, 'a100', 3));
  await modify(uuid, { numGpus: 1 });
  assert.deepEqual(await owned(uuid), ['m1 0000:01:00.0']);
  await modify(uuid, { gpuType: 'T4' });
  assert.deepEqual(await owned(uuid), ['m1 0000:0a:00.0']);
  await modify(uuid, { gpuType: 'cpu', cpuCores: 2 });
  assert.deepEqual(await owned(uuid), []);
  assert.deepEqual(attached('configure'), []);
  const { row } = await shop.instances.get(shop.actor, uuid);
  await shop.instances.stop(shop.actor, uuid);
  await shop.settle();
  await modify(uuid, { gpuType: 'a100', cpuCores: 16 });
  assert.deepEqual(await owned(uuid), ['m1 0000:01:00.0'], 'stopped ones, too');
  assert.equal(row.gpu_type, 'cpu');
});

test('of two that want the last GPU one gets it, and the engine never gives it to both', async () => {
  have({ m1: [card('0000:01:00.0')] });
  const small = { ...smallest, cpuCores: 2, mode: 'production' };
  const both = await Promise.all([1, 2].map(() => shop.instances.create(shop.actor, small)));
  await shop.settle();
  shop.faults.asked.length = 0;
  const change = { gpuType: 'a100', cpuCores: 16, diskSizeGb: 100 };
  const outcomes = await Promise.allSettled(both.map(({ uuid }) => modify(uuid, change)));
  assert.deepEqual(outcomes.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
  const given = shop.faults.asked.filter(({ parameters: [machine] }) =>
    isWith(machine, [card('0000:01:00.0')]),
  );
  assert.equal(given.length, 1);
});

test('a GPU that a failed change wanted is nobody’s until the engine has surely let go of it', async () => {
  have({ m1: [card('0000:01:00.0'), card('0000:02:00.0')] });
  const { uuid } = await create();
  await shop.settle();
  shop.faults.inject('configure', 1_000, { after: true, kind: 'timeout' });
  await assert.rejects(modify(uuid, { numGpus: 2 }), { kind: 'engine_timeout' });
  await shop.monitor.look();
  assert.deepEqual(await owned(uuid), ['m1 0000:01:00.0', 'm1 0000:02:00.0 ?']);
  await assert.rejects(create(), short(1, 'a100', 0));
  shop.faults.inject('configure', 0);
  await shop.monitor.look();
  assert.deepEqual(attached('configure'), [card('0000:01:00.0')]);
  assert.deepEqual(await owned(uuid), ['m1 0000:01:00.0']);
  await create();
});

test('a change that was killed is brought back for a stopped instance, too', async () => {
  have({ m1: [card('0000:01:00.0'), card('0000:02:00.0')] });
  const { uuid } = await create();
  await shop.settle();
  await shop.instances.stop(shop.actor, uuid);
  await shop.settle();
  const { row } = await shop.instances.get(shop.actor, uuid);
  const a100Type = catalog.gpuTypes.find(({ name }) => name === 'a100');
  await shop.placing.reserve(row, { ...row, num_gpus: 2 }, a100Type);
  await shop.monitor.look();
  assert.deepEqual(await owned(uuid), ['m1 0000:01:00.0', 'm1 0000:02:00.0 ?'], 'it may go on');
  shop.clock.nowMs += 61_000;
  await assert.rejects(create(), short(1, 'a100', 0));
  await shop.monitor.look();
  assert.deepEqual(await owned(uuid), ['m1 0000:01:00.0']);
  assert.deepEqual(attached('configure'), [card('0000:01:00.0')]);
});

test('the status says what can be placed now', async () => {
  have({ m1: [card('0000:01:00.0'), card('0000:02:00.0')] });
  const catalogs = new CatalogService(shop.context, catalog, shop.placing);
  const available = async () => {
    const { canPlace } = await catalogs.availability();
    return catalog.specs.filter(canPlace).map((spec) => spec.key);
  };
  const cpu = ['cpu_x1_prototyping', 'cpu_x1_production'];
  assert.deepEqual(await available(), [
    ...[...cpu, 'a100_x1_production', 'a100_x2_production'],
    ...['slice_x1_production', 'slice_x2_production'],
  ]);
  const { uuid } = await create();
  assert.deepEqual(await available(), [...cpu, 'a100_x1_production']);
  await create();
  assert.deepEqual(await available(), cpu);
  await updateInstance(shop.store.db, uuid, { memory_gb: 100_000 });
  assert.deepEqual(await available(), []);
  have({});
  assert.deepEqual(await available(), cpu, 'where nobody accounts');
});

test('the operator is told of hosts that the catalog names and the engine does not have', () => {
  have({ m2: [] });
  const catalogs = new CatalogService(shop.context, catalog, shop.placing);
  assert.deepEqual(catalogs.notices(), [
    'The catalog names the host "m1", which the engine sandbox does not have: nothing is placed there.',
  ]);
});
