import type { Insertable } from 'kysely';
import type { Db } from './database.ts';
import type { InstanceKeyRow, InstanceKeyTable } from './schema.ts';

/**
 * Records a key of an instance that still exists. False when the instance is gone. A key that is recorded already
 * stays as it is but for its end, and is there for good when this one is.
 */
export async function recordKey(db: Db, row: Insertable<InstanceKeyTable>): Promise<boolean> {
  if (!(await isThere(db, row))) return false;
  const { expires_at, state } = row;
  await db
    .insertInto('instance_keys')
    .values(row)
    .onConflict((conflict) =>
      conflict.columns(['instance_id', 'fingerprint']).doUpdateSet({ expires_at, state }),
    )
    .execute();
  return true;
}

/** Records a key that is to be taken back, unless it is recorded already, or its instance is gone. */
export async function recordLeftKey(db: Db, row: Insertable<InstanceKeyTable>): Promise<void> {
  if (!(await isThere(db, row))) return;
  await db
    .insertInto('instance_keys')
    .values(row)
    .onConflict((conflict) => conflict.columns(['instance_id', 'fingerprint']).doNothing())
    .execute();
}

async function isThere(db: Db, row: Insertable<InstanceKeyTable>): Promise<boolean> {
  const alive = await db
    .selectFrom('instances')
    .select('id')
    .where('id', '=', row.instance_id)
    .where('org_id', '=', row.org_id)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
  return alive !== undefined;
}

/** Makes a pending key an active one; false when it is gone. */
export async function confirmKey(db: Db, id: string): Promise<boolean> {
  const result = await db
    .updateTable('instance_keys')
    .set({ state: 'active' })
    .where('id', '=', id)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** Says of a key that its answer never left, so that it is taken back. */
export async function withdrawKey(db: Db, id: string): Promise<void> {
  await db.updateTable('instance_keys').set({ state: 'pending' }).where('id', '=', id).execute();
}

export async function deleteKey(db: Db, id: string): Promise<void> {
  await db.deleteFrom('instance_keys').where('id', '=', id).execute();
}

export async function deleteKeyByFingerprint(
  db: Db,
  orgId: string,
  instanceId: string,
  fingerprint: string,
): Promise<boolean> {
  const result = await db
    .deleteFrom('instance_keys')
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .where('fingerprint', '=', fingerprint)
    .executeTakeFirst();
  return result.numDeletedRows > 0n;
}

/** The keys of one instance, oldest first. */
export function listKeys(db: Db, orgId: string, instanceId: string): Promise<InstanceKeyRow[]> {
  return db
    .selectFrom('instance_keys')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .orderBy('added_at')
    .orderBy('id')
    .execute();
}

/** Where in the organization this key was recorded. */
export function listKeysByFingerprint(
  db: Db,
  orgId: string,
  fingerprint: string,
): Promise<InstanceKeyRow[]> {
  return db
    .selectFrom('instance_keys')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('fingerprint', '=', fingerprint)
    .execute();
}

/** The keys that callers were told of, of every instance of the organization, oldest first. */
export function listActiveKeys(
  db: Db,
  orgId: string,
): Promise<{ instance_id: string; public_key: string }[]> {
  return db
    .selectFrom('instance_keys')
    .select(['instance_id', 'public_key'])
    .where('org_id', '=', orgId)
    .where('state', '=', 'active')
    .orderBy('added_at')
    .orderBy('id')
    .execute();
}

/** Keys that nobody was told of, whoever owns them: for the sweeper. */
export function listPendingKeys(db: Db): Promise<InstanceKeyRow[]> {
  return db.selectFrom('instance_keys').selectAll().where('state', '=', 'pending').execute();
}

/** Those of one instance. */
export async function listPendingKeyIds(
  db: Db,
  orgId: string,
  instanceId: string,
): Promise<string[]> {
  const rows = await db
    .selectFrom('instance_keys')
    .select('id')
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .where('state', '=', 'pending')
    .execute();
  return rows.map(({ id }) => id);
}

/** Is nobody told of this key, as of now? */
export async function isPending(db: Db, id: string): Promise<boolean> {
  const row = await db
    .selectFrom('instance_keys')
    .select('state')
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.state === 'pending';
}
