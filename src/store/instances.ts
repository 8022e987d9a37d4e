import type { Insertable, Updateable } from 'kysely';
import type { Reference } from '../domain/ids.ts';
import type { InstanceStatus } from '../domain/lifecycle.ts';
import type { Db } from './database.ts';
import type { InstanceRow, InstanceTable } from './schema.ts';

export async function insertInstance(db: Db, row: Insertable<InstanceTable>): Promise<void> {
  await db.insertInto('instances').values(row).execute();
}

/** One live instance of the organization, by number or UUID. */
export function findInstance(
  db: Db,
  orgId: string,
  reference: Reference,
): Promise<InstanceRow | undefined> {
  const query = db
    .selectFrom('instances')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('deleted_at', 'is', null);
  const named =
    'uuid' in reference
      ? query.where('id', '=', reference.uuid)
      : query.where('identifier', '=', reference.identifier);
  return named.executeTakeFirst();
}

export function listInstances(db: Db, orgId: string): Promise<InstanceRow[]> {
  return db
    .selectFrom('instances')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('deleted_at', 'is', null)
    .orderBy('identifier')
    .execute();
}

/** For the worker and the monitor, which act for the service and not for a caller. */
export function getInstance(db: Db, id: string): Promise<InstanceRow | undefined> {
  return db.selectFrom('instances').selectAll().where('id', '=', id).executeTakeFirst();
}

/** Every instance that should be in a steady state, and every one that the monitor lost sight of: for the monitor. */
export function listSteadyInstances(db: Db): Promise<InstanceRow[]> {
  return db
    .selectFrom('instances')
    .selectAll()
    .where((eb) =>
      eb.or([
        eb('status', 'in', ['RUNNING', 'STOPPED']),
        eb.and([eb('status', '=', 'UNKNOWN'), eb('status_before', 'is not', null)]),
      ]),
    )
    .where('deleted_at', 'is', null)
    .execute();
}

/** Which of these names of the engine are ours; deleted instances that are not gone yet included. */
export async function filterInstanceRefs(db: Db, refs: readonly string[]): Promise<string[]> {
  if (refs.length === 0) return [];
  const query = db.selectFrom('instances').select('engine_ref');
  const rows = await query.where('engine_ref', 'in', [...refs]).execute();
  return rows.map((row) => row.engine_ref);
}

/** The engine's names of all that are ours; deleted instances that are not gone yet included. */
export async function listInstanceRefs(db: Db): Promise<string[]> {
  const rows = await db.selectFrom('instances').select('engine_ref').execute();
  return rows.map((row) => row.engine_ref);
}

export async function listPortsInUse(db: Db): Promise<Set<number>> {
  const rows = await db.selectFrom('instances').select('ssh_port').execute();
  return new Set(rows.map((row) => row.ssh_port));
}

export async function updateInstance(
  db: Db,
  id: string,
  change: Updateable<InstanceTable>,
): Promise<void> {
  await db.updateTable('instances').set(change).where('id', '=', id).execute();
}

/** Compare and set: false when the status was another one, or the instance is gone. */
export async function moveInstance(
  db: Db,
  id: string,
  from: InstanceStatus,
  change: Updateable<InstanceTable>,
): Promise<boolean> {
  const result = await db
    .updateTable('instances')
    .set(change)
    .where('id', '=', id)
    .where('status', '=', from)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** Compare and set: false when it is not in the very state any more in which it was read. */
export async function changeInstance(
  db: Db,
  orgId: string,
  read: Pick<InstanceRow, 'id' | 'status' | 'status_since'>,
  change: Updateable<InstanceTable>,
): Promise<boolean> {
  const result = await db
    .updateTable('instances')
    .set(change)
    .where('org_id', '=', orgId)
    .where('id', '=', read.id)
    .where('status', '=', read.status)
    .where('status_since', '=', read.status_since)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

export async function deleteInstanceRow(db: Db, id: string): Promise<void> {
  await db.deleteFrom('instances').where('id', '=', id).execute();
}

/** Is a restore reading this snapshot? */
export async function isSnapshotBeingRestored(
  db: Db,
  orgId: string,
  snapshotId: string,
): Promise<boolean> {
  const row = await db
    .selectFrom('instances')
    .innerJoin('operations', 'operations.lock_id', 'instances.id')
    .where('instances.org_id', '=', orgId)
    .where('instances.snapshot_id', '=', snapshotId)
    .where('operations.kind', '=', 'instance.create')
    .where('operations.finished_at', 'is', null)
    .select('instances.id')
    .executeTakeFirst();
  return row !== undefined;
}
