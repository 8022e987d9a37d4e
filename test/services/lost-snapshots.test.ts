/** Snapshots that the engine has no more. On the real engine and store. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { claimPorts } from '../support/ports.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

const shop: Workshop = await openWorkshop(await claimPorts(40));
after(() => shop.close());

const { uuid } = await shop.instances.create(shop.actor, smallest);
await shop.settle();

interface Listed {
  readonly id: string;
  readonly name: string;
  readonly status: string;
}

const list = async (): Promise<Listed[]> =>
  JSON.parse((await shop.snapshots.list(shop.actor)).body.toString()) as Listed[];

async function statusOf(name: string): Promise<string> {
  return (await list()).find((one) => one.name === name)?.status ?? 'gone';
}

async function take(name: string): Promise<string> {
  await shop.snapshots.create(shop.actor, uuid, name);
  await shop.settle();
  assert.equal(await statusOf(name), 'READY');
  return (await list()).find((one) => one.name === name)?.id ?? '';
}

test('one that vanished is FAILED at the next look, and READY when the engine has it again', async () => {
  const [lost] = [await take('lost'), await take('kept')];
  await shop.monitor.look();
  await shop.engine.deleteSnapshot(lost);
  await shop.monitor.look();
  assert.deepEqual([await statusOf('lost'), await statusOf('kept')], ['FAILED', 'READY']);
  await assert.rejects(
    shop.instances.create(shop.actor, { ...smallest, template: 'lost' }),
    /"lost" is FAILED; only a READY one can be restored/,
  );
  await shop.engine.createSnapshot(uuid, lost);
  await shop.monitor.look();
  assert.equal(await statusOf('lost'), 'READY');
});

test('one that vanished before any look had seen it is FAILED, too', async () => {
  await shop.monitor.look();
  await shop.engine.deleteSnapshot(await take('soon-lost'));
  await shop.monitor.look();
  assert.equal(await statusOf('soon-lost'), 'FAILED');
});

test('one that vanished while the service was down is found at the first look, and can be deleted', async () => {
  const id = await take('while-down');
  await shop.engine.deleteSnapshot(id);
  await shop.newMonitor().look();
  assert.equal(await statusOf('while-down'), 'FAILED');
  await shop.snapshots.delete(shop.actor, id);
  await shop.settle();
  assert.equal(await statusOf('while-down'), 'gone');
});

test('an engine that is away takes no snapshot for lost', async () => {
  await take('away');
  shop.faults.inject('inventory', 1, { kind: 'unavailable' });
  await shop.newMonitor().look();
  assert.equal(await statusOf('away'), 'READY');
});

test('one that is being deleted, or whose making failed, stays what it is', async () => {
  const id = await take('going');
  await shop.monitor.look();
  shop.faults.inject('deleteSnapshot', 1, { kind: 'unavailable', after: true });
  await shop.snapshots.delete(shop.actor, id);
  await shop.worker.runOnce();
  await shop.monitor.look();
  assert.equal(await statusOf('going'), 'gone');
  await shop.settle();

  shop.faults.inject('createSnapshot', 5, { after: true });
  await shop.snapshots.create(shop.actor, uuid, 'failing');
  shop.faults.inject('deleteSnapshot', 1, { kind: 'unavailable' });
  await shop.settle();
  await shop.monitor.look();
  assert.equal(await statusOf('failing'), 'FAILED');
  shop.faults.clear();
});
