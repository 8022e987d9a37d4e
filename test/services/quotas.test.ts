/** Quotas: what an organization may have, also when everything arrives at the same moment. On the real store. */

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { OrganizationService } from '../../src/services/organizations.ts';
import { updateInstance } from '../../src/store/instances.ts';
import type { QuotaLimits } from '../../src/store/quotas.ts';
import { claimPorts } from '../support/ports.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

let shop: Workshop;
let organizations: OrganizationService;

before(async () => {
  shop = await openWorkshop(await claimPorts(40));
  organizations = new OrganizationService(shop.store, shop.context.now);
});
after(() => shop.close());

const noLimits = { instances: null, cpu_cores: null, disk_gb: null, snapshots: null };
const allow = (limits: Partial<QuotaLimits>) =>
  organizations.setQuotas('workshop', { ...noLimits, ...limits });
const use = async () => (await organizations.show('workshop')).use;

/** Each test starts with nothing. */
beforeEach(async () => {
  const { db } = shop.store;
  await db.deleteFrom('operations').execute();
  await db.deleteFrom('snapshots').execute();
  await db.deleteFrom('instances').execute();
  await allow({});
});

const create = (size: Partial<typeof smallest> = {}) =>
  shop.instances.create(shop.actor, { ...smallest, ...size });

/** An instance that the database calls RUNNING: a quota asks nothing else. */
async function running(size: Partial<typeof smallest> = {}): Promise<string> {
  const { uuid } = await create(size);
  await shop.store.db.deleteFrom('operations').execute();
  await updateInstance(shop.store.db, uuid, { status: 'RUNNING' });
  return uuid;
}

const over = (quota: string, limit: number, inUse: number, asked: number) => ({
  kind: 'conflict',
  message: new RegExp(
    `quota "${quota}".* limit is ${limit}, ${inUse} in use, ${asked} more asked for`,
  ),
});

/** How many were let in; every other one was refused for this quota. */
async function admitted(quota: string, pending: Promise<unknown>[]): Promise<number> {
  const outcomes = await Promise.allSettled(pending);
  for (const outcome of outcomes) {
    if (outcome.status === 'rejected')
      assert.match((outcome.reason as Error).message, new RegExp(`quota "${quota}"`));
  }
  return outcomes.filter((outcome) => outcome.status === 'fulfilled').length;
}

test('instances: exactly as many as allowed of 64 at once', async () => {
  await allow({ instances: 5 });
  assert.equal(
    await admitted(
      'instances',
      Array.from({ length: 64 }, () => create()),
    ),
    5,
  );
  assert.equal((await use()).instances, 5);
  await assert.rejects(create(), over('instances', 5, 5, 1));
});

test('cpu_cores: sums the cores of all of 64 at once', async () => {
  await allow({ cpu_cores: 7 });
  const pending = Array.from({ length: 64 }, () => create({ cpuCores: 2 }));
  assert.equal(await admitted('cpu_cores', pending), 3);
  await assert.rejects(create({ cpuCores: 2 }), over('cpu_cores', 7, 6, 2));
  await create({ cpuCores: 1 });
});

test('disk_gb: sums the disks of all of 64 at once', async () => {
  await allow({ disk_gb: 45 });
  const pending = Array.from({ length: 64 }, () => create({ diskSizeGb: 20 }));
  assert.equal(await admitted('disk_gb', pending), 2);
  await assert.rejects(create({ diskSizeGb: 20 }), over('disk_gb', 45, 40, 20));
});

test('disk_gb counts the ephemeral disk, too', async () => {
  const uuid = await running({ diskSizeGb: 20 });
  await updateInstance(shop.store.db, uuid, { ephemeral_disk_gb: 30 });
  await allow({ disk_gb: 60 });
  await assert.rejects(create({ diskSizeGb: 11 }), over('disk_gb', 60, 50, 11));
  await create({ diskSizeGb: 10 });
});

test('snapshots: exactly as many as allowed of 16 at once', async () => {
  const uuids: string[] = [];
  for (let count = 0; count < 16; count++) uuids.push(await running());
  await allow({ snapshots: 3 });
  const pending = uuids.map((uuid, count) => shop.snapshots.create(shop.actor, uuid, `s${count}`));
  assert.equal(await admitted('snapshots', pending), 3);
  const free = await running();
  await assert.rejects(shop.snapshots.create(shop.actor, free, 'more'), over('snapshots', 3, 3, 1));
});

test('what is refused writes nothing', async () => {
  await allow({ instances: 0 });
  const before = await shop.store.db.selectFrom('organizations').selectAll().execute();
  await assert.rejects(create(), over('instances', 0, 0, 1));
  assert.deepEqual(await shop.store.db.selectFrom('organizations').selectAll().execute(), before);
  assert.deepEqual(await shop.store.db.selectFrom('instances').selectAll().execute(), []);
  assert.deepEqual(await shop.store.db.selectFrom('operations').selectAll().execute(), []);
});

test('stopped and failed instances count, deleted ones do not', async () => {
  const [stopped, failed, deleted] = [await running(), await running(), await running()];
  await updateInstance(shop.store.db, stopped, { status: 'STOPPED' });
  await updateInstance(shop.store.db, failed, { status: 'UNKNOWN' });
  await allow({ instances: 3 });
  await assert.rejects(create(), over('instances', 3, 3, 1));
  await shop.instances.delete(shop.actor, deleted);
  await create();
  await assert.rejects(create(), over('instances', 3, 3, 1));
});

test('modify grows within the quotas alone, and is free to shrink', async () => {
  const { uuid } = await create({ cpuCores: 2 });
  await shop.settle();
  await allow({ cpu_cores: 3, disk_gb: 12 });
  const modify = (change: object) =>
    shop.instanceModify.modify(shop.actor, uuid, { addPorts: [], removePorts: [], ...change });
  await assert.rejects(modify({ cpuCores: 4 }), over('cpu_cores', 3, 2, 2));
  await assert.rejects(modify({ diskSizeGb: 13 }), over('disk_gb', 12, 10, 3));
  assert.equal((await shop.instances.get(shop.actor, uuid)).row.cpu_cores, 2);
  await modify({ cpuCores: 3, diskSizeGb: 12 });
  await allow({ cpu_cores: 1, disk_gb: 1 });
  await modify({ cpuCores: 2 });
  assert.deepEqual(await use(), { instances: 1, cpu_cores: 2, disk_gb: 12, snapshots: 0 });
});

test('limits are set one by one, taken away by null, and never below zero', async () => {
  await organizations.setQuotas('workshop', { instances: 4 });
  const more = await organizations.setQuotas('workshop', { snapshots: 2 });
  assert.deepEqual(more.limits, { ...noLimits, instances: 4, snapshots: 2 });
  const fewer = await organizations.setQuotas('workshop', { instances: null });
  assert.deepEqual(fewer.limits, { ...noLimits, snapshots: 2 });
  for (const limit of [-1, 0.5, Number.NaN])
    await assert.rejects(organizations.setQuotas('workshop', { instances: limit }), {
      kind: 'invalid_request',
    });
  await assert.rejects(organizations.setQuotas('nobody', {}), { kind: 'not_found' });
});

test("one organization's quota and use are nothing to another", async () => {
  await organizations.create({ name: 'neighbour', email: 'test@localhost' });
  await organizations.setQuotas('neighbour', { instances: 0 });
  await create();
  assert.equal((await organizations.show('neighbour')).use.instances, 0);
  assert.deepEqual((await organizations.show('workshop')).limits, noLimits);
});

test('an organization that has anything is not deleted', async () => {
  await organizations.create({ name: 'empty', email: 'test@localhost' });
  await organizations.delete('empty');
  await assert.rejects(organizations.show('empty'), { kind: 'not_found' });
  const { uuid } = await create();
  await assert.rejects(organizations.delete('workshop'), {
    kind: 'conflict',
    message: /not empty/,
  });
  await updateInstance(shop.store.db, uuid, { status: 'RUNNING', deleted_at: 1 });
  await assert.rejects(organizations.delete('workshop'), { kind: 'conflict' }, 'not gone yet');
});
