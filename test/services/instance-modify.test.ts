/** Changing an instance when something goes wrong on the way. On the real engine and store. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { instanceStatuses } from '../../src/domain/lifecycle.ts';
import { InstanceConfiguration } from '../../src/services/instance-configuration.ts';
import type { InstanceChange } from '../../src/services/instance-modify.ts';
import { machineOf } from '../../src/services/machine.ts';
import { updateInstance } from '../../src/store/instances.ts';
import { occupy, vacate } from '../support/guest-server.ts';
import { claimPorts } from '../support/ports.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

let shop: Workshop;
let uuid: string;
let port: number;
let spare: number;

before(async () => {
  const range = await claimPorts(20);
  [port, spare] = [range.to - 1, range.to];
  shop = await openWorkshop({ from: range.from, to: range.to - 2 });
  ({ uuid } = await shop.instances.create(shop.actor, smallest));
  await shop.settle();
});
after(() => shop.close());

const change = (wanted: Partial<InstanceChange>) =>
  shop.instanceModify.modify(shop.actor, uuid, { addPorts: [], removePorts: [], ...wanted });

/** What the database says, and what the engine does. */
async function state() {
  const { row, httpPorts } = await shop.instances.get(shop.actor, uuid);
  const published = (await shop.engine.inspect(uuid))?.httpPorts ?? [];
  return { cpuCores: row.cpu_cores, ports: [...httpPorts], published: [...published] };
}

const untouched = { cpuCores: 1, ports: [], published: [] };

async function reset(): Promise<void> {
  shop.faults.clear();
  const { ports } = await state();
  await change({ cpuCores: 1, removePorts: ports });
  assert.deepEqual(await state(), untouched);
}

test('what the engine refuses is not done, and not written', async () => {
  shop.faults.inject('configure', 1);
  await assert.rejects(change({ cpuCores: 2, addPorts: [port] }), { kind: 'engine_error' });
  assert.deepEqual(await state(), untouched);
});

test('what the engine did although it said otherwise is set right', async () => {
  shop.faults.inject('configure', 1, { after: true });
  await assert.rejects(change({ cpuCores: 2, addPorts: [port] }), { kind: 'engine_error' });
  await shop.monitor.look();
  assert.deepEqual(await state(), untouched);
});

test('a commit that fails takes back the part of the engine', async () => {
  await change({ addPorts: [spare] });
  const { db } = shop.store;
  const limits = { instances: null, cpu_cores: 1, disk_gb: null, snapshots: null };
  await db
    .insertInto('quotas')
    .values({ org_id: shop.actor.orgId, ...limits })
    .execute();
  const refused = change({ cpuCores: 2, addPorts: [port], removePorts: [spare] });
  await assert.rejects(refused, { kind: 'conflict', message: /"cpu_cores"/ });
  assert.deepEqual(await state(), { cpuCores: 1, ports: [spare], published: [spare] });
  await db.deleteFrom('quotas').execute();
  await reset();
});

test('an instance that changes meanwhile is not overwritten', async () => {
  const asked = change({ cpuCores: 2, addPorts: [port] });
  const stopped = shop.instances.stop(shop.actor, uuid);
  const [outcome] = await Promise.allSettled([asked, stopped]);
  await shop.settle();
  const now = await state();
  assert.deepEqual(now.published, []);
  assert.deepEqual(now.ports, outcome.status === 'fulfilled' ? [port] : []);
  assert.equal(now.cpuCores, outcome.status === 'fulfilled' ? 2 : 1);
  await shop.instances.start(shop.actor, uuid);
  await shop.settle();
  assert.deepEqual((await state()).published, now.ports);
  await reset();
});

test('a status that changes between the engine and the commit undoes both', async () => {
  const { db } = shop.store;
  const since = (await shop.instances.get(shop.actor, uuid)).row.status_since;
  for (const meanwhile of [{ status: 'SNAPPING' as const }, { status_since: since + 1 }]) {
    let changed: Promise<void> | undefined;
    const crashPoint = (point: string) => {
      if (point === 'modify:configured:after') changed = updateInstance(db, uuid, meanwhile);
    };
    Object.assign(shop.context, { crashPoint });
    const asked = change({ cpuCores: 2, addPorts: [port] });
    await assert.rejects(asked, { kind: 'conflict', message: /at the same moment/ });
    Object.assign(shop.context, { crashPoint: () => {} });
    await changed;
    await updateInstance(db, uuid, { status: 'RUNNING', status_since: since });
    await shop.monitor.look();
    assert.deepEqual(await state(), untouched);
  }
});

test('only what is RUNNING or STOPPED is changed; the refusal names the status', async () => {
  const { row } = await shop.instances.get(shop.actor, uuid);
  for (const status of instanceStatuses) {
    await updateInstance(shop.store.db, uuid, { status });
    const outcome = change({}).then(
      () => 'done',
      (error: Error) => error.message,
    );
    const allowed = ['RUNNING', 'STOPPED'].includes(status);
    assert.match(await outcome, allowed ? /^done$/ : new RegExp(` is ${status}\\.`));
  }
  await updateInstance(shop.store.db, uuid, { status: row.status });
});

test('ports that the engine lost are published again, without those that are taken', async () => {
  await change({ addPorts: [port, spare] });
  const { row } = await shop.instances.get(shop.actor, uuid);
  const machine = machineOf(row, { httpPorts: [], gpus: [] }, []);
  await shop.engine.configure({ ...machine, httpPorts: [] });
  const taken = await occupy(port);
  await shop.monitor.look('states');
  assert.deepEqual((await state()).published, [], 'not before the service has its own port');
  await shop.monitor.look();
  assert.deepEqual((await state()).published, [spare]);
  await vacate(taken);
  await shop.monitor.look();
  assert.deepEqual((await state()).published, [port, spare]);
  await reset();
});

test('an instance that starts while it is looked at keeps its ports', async () => {
  const { row } = await shop.instances.get(shop.actor, uuid);
  const inventory = await shop.engine.inventory();
  await shop.instances.stop(shop.actor, uuid);
  await shop.settle();
  await change({ addPorts: [port] });
  let started = false;
  const engine = new Proxy(shop.engine, {
    get:
      (target, name) =>
      async (...parameters: unknown[]) => {
        if (name === 'configure' && !started) {
          started = true;
          await shop.instances.start(shop.actor, uuid);
          await shop.settle();
        }
        return Reflect.apply(Reflect.get(target, name), target, parameters);
      },
  });
  const capabilities = { get: () => shop.engine.capabilities };
  const seen = Object.defineProperty(Object.create(engine), 'capabilities', capabilities);
  await new InstanceConfiguration({ ...shop.context, engine: seen }).look([row], inventory);
  assert.ok(started);
  assert.deepEqual((await state()).published, [port]);
  await reset();
});

test('a port that nobody asked for is closed', async () => {
  const { row } = await shop.instances.get(shop.actor, uuid);
  const machine = machineOf(row, { httpPorts: [], gpus: [] }, []);
  await shop.engine.configure({ ...machine, httpPorts: [port] });
  await shop.monitor.look();
  assert.deepEqual(await state(), untouched);
});

test('what was placed under an older catalog keeps its shape, and can have ports', async () => {
  await updateInstance(shop.store.db, uuid, { gpu_type: 'long-gone' });
  await change({ addPorts: [port], gpuType: 'long-gone', diskSizeGb: 10 });
  await assert.rejects(change({ cpuCores: 2 }), { kind: 'invalid_request', message: /long-gone/ });
  await change({ gpuType: 'cpu', removePorts: [port] });
  assert.deepEqual(await state(), untouched);
});

test('every change is in the audit log, with what it was', async () => {
  await change({ cpuCores: 2, addPorts: [port] });
  const ports = { addPorts: [spare], removePorts: [port] };
  await shop.instanceModify.changePorts(shop.actor, uuid, ports);
  await change({});
  const lines = await shop.store.db.selectFrom('audit_log').selectAll().orderBy('id').execute();
  const told = lines.slice(-3).map((line) => [line.action, line.subject, line.outcome]);
  assert.deepEqual(told, [
    ['instance.modify', uuid, `done cpu_cores=2 memory_gb=8 +${port}`],
    ['instance.ports', uuid, `done +${spare} -${port}`],
    ['instance.modify', uuid, 'unchanged'],
  ]);
  await reset();
});
