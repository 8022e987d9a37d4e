import type { Insertable, Updateable } from 'kysely';
import type { Db } from './database.ts';
import type { SnapshotRow, SnapshotTable } from './schema.ts';

export async function insertSnapshot(db: Db, row: Insertable<SnapshotTable>): Promise<void> {
  await db.insertInto('snapshots').values(row).execute();
}

/** Every live snapshot of the organization, oldest first: by the second that callers see, then by id. */
export function listSnapshots(db: Db, orgId: string): Promise<SnapshotRow[]> {
  return db
    .selectFrom('snapshots')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('deleted_at', 'is', null)
    .orderBy((eb) => eb('created_at', '/', eb.lit(1000)))
    .orderBy('id')
    .execute();
}

export function findSnapshot(db: Db, orgId: string, id: string): Promise<SnapshotRow | undefined> {
  return db
    .selectFrom('snapshots')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('id', '=', id)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
}

export function findSnapshotByName(
  db: Db,
  orgId: string,
  name: string,
): Promise<SnapshotRow | undefined> {
  return db
    .selectFrom('snapshots')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('name', '=', name)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
}

/** For the worker, which acts for the service and not for a caller; deleted ones included. */
export function getSnapshot(db: Db, id: string): Promise<SnapshotRow | undefined> {
  return db.selectFrom('snapshots').selectAll().where('id', '=', id).executeTakeFirst();
}

export async function updateSnapshot(
  db: Db,
  id: string,
  change: Updateable<SnapshotTable>,
): Promise<void> {
  await db.updateTable('snapshots').set(change).where('id', '=', id).execute();
}

export async function deleteSnapshotRow(db: Db, id: string): Promise<void> {
  await db.deleteFrom('snapshots').where('id', '=', id).execute();
}
