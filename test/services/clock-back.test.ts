/** A clock that is put back, as by an NTP client after a battery ran out: nothing waits until it has caught up. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AdminTokenService } from '../../src/services/admin-tokens.ts';
import { TokenService } from '../../src/services/tokens.ts';
import {
  claimOperation,
  leaseMs,
  listDueOperations,
  releaseLeases,
} from '../../src/store/operations.ts';
import { claimPorts } from '../support/ports.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

const dayMs = 86_400_000;
let shop: Workshop;
before(async () => {
  shop = await openWorkshop(await claimPorts(8));
});
after(() => shop.close());

const putBack = (ms: number) => {
  shop.clock.nowMs -= ms;
};

async function runningInstance(): Promise<string> {
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  await shop.settle();
  await statusIs(uuid, 'RUNNING');
  return uuid;
}

async function statusIs(uuid: string, status: string): Promise<void> {
  assert.equal((await shop.instances.get(shop.actor, uuid)).row.status, status);
}

async function snapshotStatus(name: string): Promise<string | undefined> {
  const { body } = await shop.snapshots.list(shop.actor);
  const all = JSON.parse(body.toString()) as { name: string; status: string }[];
  return all.find((one) => one.name === name)?.status;
}

test('what was asked for, or paused, before the clock went back by a day is done now', async () => {
  const uuid = await runningInstance();
  await shop.snapshots.create(shop.actor, uuid, 'paused');
  shop.faults.inject('createSnapshot', 1, { kind: 'unavailable' });
  await shop.worker.runOnce();
  assert.equal(await snapshotStatus('paused'), 'CREATING', 'it pauses');
  assert.equal(await shop.worker.runOnce(), 0);
  putBack(dayMs);
  assert.equal(await shop.worker.runOnce(), 1);
  assert.equal(await snapshotStatus('paused'), 'READY');

  await shop.instances.stop(shop.actor, uuid);
  putBack(dayMs);
  assert.equal(await shop.worker.runOnce(), 1);
  await statusIs(uuid, 'STOPPED');
});

test('a lease that ends in a day holds nobody up', async () => {
  const uuid = await runningInstance();
  await shop.instances.stop(shop.actor, uuid);
  const now = shop.clock.nowMs;
  const lease = { owner: 'a node that is gone', now, expiresAt: now + leaseMs };
  for (const { id } of await listDueOperations(shop.store.db, now, 10))
    assert.ok(await claimOperation(shop.store.db, id, lease));
  assert.equal(await shop.worker.runOnce(), 0, 'it holds while it lasts');
  putBack(dayMs);
  assert.equal(await shop.worker.runOnce(), 1);
  await statusIs(uuid, 'STOPPED');
});

test('a node that starts waits for no pause, so that a clock put back a little holds nothing up', async () => {
  const uuid = await runningInstance();
  await shop.instances.stop(shop.actor, uuid);
  putBack(20_000);
  assert.equal(await shop.worker.runOnce(), 0);
  await releaseLeases(shop.store.db, 'test', shop.clock.nowMs);
  assert.equal(await shop.worker.runOnce(), 1);
  await statusIs(uuid, 'STOPPED');
});

test('a token that is revoked beside the service is not remembered until the clock has caught up', async () => {
  const { store, context } = shop;
  const admin = new AdminTokenService(store, context.now);
  const tokens = new TokenService(context);
  const { token } = await admin.create({ organization: 'workshop', name: 'short' });
  await tokens.authenticate(token, 'request');
  await admin.revoke('workshop', 'short');
  assert.ok(tokens.recognize(token), 'it is remembered for a second');
  putBack(dayMs);
  assert.equal(tokens.recognize(token), undefined);
  await assert.rejects(tokens.authenticate(token, 'request'), { kind: 'unauthorized' });
});
