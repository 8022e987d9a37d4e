import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { Db, Store } from '../../src/store/database.ts';
import {
  confirmKey,
  isPending,
  listActiveKeys,
  listPendingKeys,
  recordKey,
} from '../../src/store/instance-keys.ts';
import {
  deleteInstanceRow,
  findInstance,
  insertInstance,
  moveInstance,
} from '../../src/store/instances.ts';
import {
  claimOperation,
  insertOperation,
  listDueOperations,
  releaseLeases,
  updateLeased,
} from '../../src/store/operations.ts';
import { insertOrganization, takeIdentifier } from '../../src/store/organizations.ts';
import { insertGpu, listGpus, lockPlacing, sumUseByHost } from '../../src/store/placing.ts';
import type { InstanceKeyRow, InstanceRow, OperationRow } from '../../src/store/schema.ts';
import {
  findSnapshotByName,
  insertSnapshot,
  listSnapshots,
  updateSnapshot,
} from '../../src/store/snapshots.ts';

/** What every database must do, run on each of them. */
export function describeStore(
  name: string,
  open: () => Promise<{ store: Store; cleanup: () => Promise<void> }>,
): void {
  describe(`store on ${name}`, () => {
    let store: Store;
    let cleanup: () => Promise<void>;
    before(async () => {
      ({ store, cleanup } = await open());
    });
    after(() => cleanup());

    const organization = async (db: Db = store.db): Promise<string> => {
      const id = newId();
      await insertOrganization(db, { id, name: id, next_identifier: 0, created_at: 1 });
      return id;
    };
    const instance = async (orgId: string): Promise<InstanceRow> => {
      const row = instanceRow(orgId, await takeIdentifier(store.db, orgId));
      await insertInstance(store.db, row);
      return row;
    };

    test('a transaction that rejects leaves nothing', async () => {
      let orgId = '';
      const work = store.transaction(async (tx) => {
        orgId = await organization(tx);
        throw new Error('stop');
      });
      await assert.rejects(work, /stop/);
      await assert.rejects(takeIdentifier(store.db, orgId));
    });

    test('transactions at the same moment do not mix', async () => {
      const orgId = await organization();
      const numbers = await Promise.all(
        Array.from({ length: 20 }, () => store.transaction((tx) => takeIdentifier(tx, orgId))),
      );
      assert.deepEqual(
        numbers.sort((a, b) => a - b),
        Array.from({ length: 20 }, (_, index) => index),
      );
    });

    test('an instance is found by its own organization alone, and not once deleted', async () => {
      const [own, other] = [await organization(), await organization()];
      const row = await instance(own);
      for (const reference of [{ uuid: row.id }, { identifier: row.identifier }]) {
        assert.equal((await findInstance(store.db, own, reference))?.id, row.id);
        assert.equal(await findInstance(store.db, other, reference), undefined);
      }
      assert.ok(await moveInstance(store.db, row.id, 'RUNNING', { deleted_at: 5 }));
      assert.equal(await findInstance(store.db, own, { uuid: row.id }), undefined);
    });

    test('a status is moved from the one it was seen in, or not at all', async () => {
      const row = await instance(await organization());
      assert.ok(await moveInstance(store.db, row.id, 'RUNNING', { status: 'STOPPING' }));
      assert.ok(!(await moveInstance(store.db, row.id, 'RUNNING', { status: 'SNAPPING' })));
    });

    test('two instances never share an SSH port', async () => {
      const orgId = await organization();
      const row = await instance(orgId);
      const second = { ...instanceRow(orgId, 77), ssh_port: row.ssh_port };
      await assert.rejects(insertInstance(store.db, second));
    });

    test('a key is recorded once, confirmed once, and goes with its instance', async () => {
      const orgId = await organization();
      const row = await instance(orgId);
      const key = keyRow(row);
      assert.ok(await recordKey(store.db, key));
      assert.ok(await recordKey(store.db, { ...key, id: newId(), comment: 'again' }));
      assert.deepEqual(
        (await listPendingKeys(store.db))
          .filter((one) => one.org_id === orgId)
          .map((one) => one.id),
        [key.id],
      );
      assert.deepEqual(await listActiveKeys(store.db, orgId), []);
      assert.ok(await confirmKey(store.db, key.id));
      assert.ok(!(await isPending(store.db, key.id)));
      assert.equal((await listActiveKeys(store.db, orgId)).length, 1);
      await deleteInstanceRow(store.db, row.id);
      assert.equal((await listActiveKeys(store.db, orgId)).length, 0);
      assert.ok(!(await recordKey(store.db, key)), 'an instance that is gone takes no key');
    });

    test('a GPU, whole or a part, has one owner until its instance is gone', async () => {
      const orgId = await organization();
      const [row, other] = [await instance(orgId), await instance(orgId)];
      const device = { host: newId(), pci: '0000:3b:00.0', mig_uuid: '', attach: 'physical' };
      const gpu = { ...device, org_id: orgId, instance_id: row.id, reserved_until: null };
      assert.ok(await insertGpu(store.db, gpu));
      assert.ok(!(await insertGpu(store.db, { ...gpu, instance_id: other.id })));
      assert.ok(await insertGpu(store.db, { ...gpu, host: newId() }), 'of another host');
      assert.ok(await insertGpu(store.db, { ...gpu, mig_uuid: 'MIG-1' }), 'another device');
      assert.ok(!(await insertGpu(store.db, { ...gpu, mig_uuid: 'MIG-1' })));
      await deleteInstanceRow(store.db, row.id);
      assert.ok(await insertGpu(store.db, { ...gpu, instance_id: other.id }));
      assert.deepEqual(await listGpus(store.db, await organization(), other.id), []);
    });

    test('what hosts hold is summed under a lock that every transaction gets in turn', async () => {
      const host = newId();
      const orgId = await organization();
      const place = () =>
        store.transaction(async (tx) => {
          await lockPlacing(tx);
          const use = (await sumUseByHost(tx, 1)).get(host);
          if ((use?.memoryGb ?? 0) + 4 > 12) throw new Error('full');
          const identifier = await takeIdentifier(tx, orgId);
          await insertInstance(tx, { ...instanceRow(orgId, identifier), host });
        });
      const outcomes = await Promise.allSettled(Array.from({ length: 8 }, place));
      const placed = outcomes.filter(({ status }) => status === 'fulfilled');
      assert.equal(placed.length, 3);
      const use = { instances: 3, cpuCores: 3, memoryGb: 12, diskGb: 30 };
      assert.deepEqual((await sumUseByHost(store.db, 1)).get(host), use);
    });

    test('the name of a snapshot is unique while it lives', async () => {
      const orgId = await organization();
      const row = snapshotRow(orgId, 'nightly', 1);
      await insertSnapshot(store.db, row);
      await assert.rejects(insertSnapshot(store.db, snapshotRow(orgId, 'nightly', 2)));
      await insertSnapshot(store.db, snapshotRow(await organization(), 'nightly', 2));
      await updateSnapshot(store.db, row.id, { deleted_at: 3 });
      const next = snapshotRow(orgId, 'nightly', 4);
      await insertSnapshot(store.db, next);
      assert.equal((await findSnapshotByName(store.db, orgId, 'nightly'))?.id, next.id);
    });

    test('snapshots are listed by the second they were asked for, then by id', async () => {
      const orgId = await organization();
      const late = { ...snapshotRow(orgId, 'late', 2_000), id: `0${newId().slice(1)}` };
      const second = { ...snapshotRow(orgId, 'second', 1_100), id: `b${newId().slice(1)}` };
      const first = { ...snapshotRow(orgId, 'first', 1_900), id: `a${newId().slice(1)}` };
      for (const row of [late, second, first]) await insertSnapshot(store.db, row);
      assert.deepEqual(
        (await listSnapshots(store.db, orgId)).map((row) => row.name),
        ['first', 'second', 'late'],
      );
    });

    test('one operation at a time holds an instance', async () => {
      const operation = operationRow(await organization());
      await insertOperation(store.db, operation);
      await assert.rejects(insertOperation(store.db, { ...operation, id: newId() }));
    });

    test('a lease is held by one, runs out, and is freed by a restart of its owner', async () => {
      const operation = operationRow(await organization());
      await insertOperation(store.db, operation);
      const claim = (owner: string, now: number) =>
        claimOperation(store.db, operation.id, { owner, now, expiresAt: now + 100 });
      assert.ok(await claim('one', 1000));
      assert.ok(!(await claim('two', 1050)));
      assert.ok(!(await updateLeased(store.db, operation.id, 'two', { step: 1 })));
      assert.ok(await claim('two', 1101), 'it ran out');
      assert.ok(
        !(await updateLeased(store.db, operation.id, 'one', { step: 1 })),
        'the first one lost it',
      );
      await releaseLeases(store.db, 'two', 1101);
      assert.ok(await claim('three', 1102));
      const due = await listDueOperations(store.db, 1103, 1000);
      assert.ok(!due.some((row) => row.id === operation.id));
      assert.ok(
        await updateLeased(store.db, operation.id, 'three', { finished_at: 9, state: 'succeeded' }),
      );
      assert.ok(!(await claim('four', 9999)), 'what has ended is not claimed');
    });
  });
}

let nextPort = 40_000;

function instanceRow(orgId: string, identifier: number): InstanceRow {
  const id = newId();
  return {
    ...{ id, org_id: orgId, identifier, engine_ref: id, name: 'instance', status: 'RUNNING' },
    ...{ cpu_cores: 1, num_gpus: 1, memory_gb: 4, disk_size_gb: 10, ephemeral_disk_gb: 0 },
    ...{
      gpu_type: 'cpu',
      mode: 'production',
      template: 'base',
      snapshot_id: null,
      ssh_port: nextPort++,
    },
    ...{ ip: null, port: null, failure: null, created_at: 1, status_since: 1, deleted_at: null },
    ...{ host: null, status_before: null },
  };
}

function keyRow(instance: InstanceRow): InstanceKeyRow {
  const id = newId();
  return {
    ...{
      id,
      org_id: instance.org_id,
      instance_id: instance.id,
      public_key: 'ssh-ed25519 AAAA',
      comment: '',
    },
    ...{
      key_type: 'ssh-ed25519',
      fingerprint: `SHA256:${instance.id}`,
      source: 'generated',
      state: 'pending',
    },
    ...{ added_at: 1, expires_at: null },
  };
}

function snapshotRow(orgId: string, name: string, createdAt: number) {
  const id = newId();
  const ids = { id, org_id: orgId, instance_id: 'gone', engine_ref: id, name };
  return {
    ...ids,
    status: 'READY' as const,
    minimum_disk_size_gb: 10,
    created_at: createdAt,
    deleted_at: null,
  };
}

function operationRow(orgId: string): OperationRow {
  return {
    ...{
      id: newId(),
      org_id: orgId,
      kind: 'instance.stop',
      subject_id: 'x',
      lock_id: newId(),
      state: 'running',
    },
    ...{
      step: 0,
      attempts: 0,
      run_at: 1,
      deadline_at: 9,
      lease_owner: null,
      lease_expires_at: null,
    },
    ...{ token_id: null, error: null, created_at: 1, finished_at: null },
  };
}
