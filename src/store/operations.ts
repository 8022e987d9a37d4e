import type { ExpressionBuilder, Insertable, Updateable } from 'kysely';
import type { Db } from './database.ts';
import type { OperationRow, OperationTable, Schema } from './schema.ts';

export const leaseMs = 30_000;
/** Between two tries. */
export const longestPauseMs = 30_000;
/** What claims to be further ahead than this was written before the clock was put back, and holds nobody up. */
const furthestAheadMs = 2 * Math.max(leaseMs, longestPauseMs);

export async function insertOperation(db: Db, row: Insertable<OperationTable>): Promise<void> {
  await db.insertInto('operations').values(row).execute();
}

/** Is a change of this instance or snapshot under way? */
export async function isLocked(db: Db, lockId: string): Promise<boolean> {
  const row = await db
    .selectFrom('operations')
    .select('id')
    .where('lock_id', '=', lockId)
    .where('finished_at', 'is', null)
    .executeTakeFirst();
  return row !== undefined;
}

/** Unfinished operations that are due and that nobody holds, oldest first. */
export function listDueOperations(db: Db, now: number, limit: number): Promise<OperationRow[]> {
  return db
    .selectFrom('operations')
    .selectAll()
    .where('finished_at', 'is', null)
    .where((eb) => eb.or([eb('run_at', '<=', now), eb('run_at', '>', now + furthestAheadMs)]))
    .where((eb) => isFree(eb, now))
    .orderBy('run_at')
    .limit(limit)
    .execute();
}

const isFree = (eb: ExpressionBuilder<Schema, 'operations'>, now: number) =>
  eb.or([
    eb('lease_owner', 'is', null),
    eb('lease_expires_at', '<', now),
    eb('lease_expires_at', '>', now + furthestAheadMs),
  ]);

/** When the next unfinished operation is due, in ms since the epoch. */
export async function nextDueAt(db: Db): Promise<number | undefined> {
  const row = await db
    .selectFrom('operations')
    .select((eb) => eb.fn.min('run_at').as('at'))
    .where('finished_at', 'is', null)
    .where('lease_owner', 'is', null)
    .executeTakeFirst();
  return row?.at ?? undefined;
}

/** Compare and set: takes the lease unless somebody else holds one that has not run out. */
export async function claimOperation(
  db: Db,
  id: string,
  lease: { owner: string; now: number; expiresAt: number },
): Promise<boolean> {
  const result = await db
    .updateTable('operations')
    .set({ lease_owner: lease.owner, lease_expires_at: lease.expiresAt })
    .where('id', '=', id)
    .where('finished_at', 'is', null)
    .where((eb) => isFree(eb, lease.now))
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** Writes only while the lease is ours: false means that another worker has taken over. */
export async function updateLeased(
  db: Db,
  id: string,
  owner: string,
  change: Updateable<OperationTable>,
): Promise<boolean> {
  const result = await db
    .updateTable('operations')
    .set(change)
    .where('id', '=', id)
    .where('lease_owner', '=', owner)
    .where('finished_at', 'is', null)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** After a restart: what this node held when it died is free again at once, and nothing waits out a pause. */
export async function releaseLeases(db: Db, owner: string, now: number): Promise<void> {
  await db
    .updateTable('operations')
    .set({ lease_owner: null, lease_expires_at: null })
    .where('lease_owner', '=', owner)
    .where('finished_at', 'is', null)
    .execute();
  await db
    .updateTable('operations')
    .set({ run_at: now })
    .where('lease_owner', 'is', null)
    .where('finished_at', 'is', null)
    .where('run_at', '>', now)
    .execute();
}
