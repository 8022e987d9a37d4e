import type { ExpressionBuilder, Insertable, Updateable } from 'kysely';
import type { Db } from './database.ts';
import type { Schema, SnapshotRow, SnapshotTable } from './schema.ts';

/** All that is given has to hold. */
export interface SnapshotFilter {
  readonly status?: SnapshotRow['status'];
  readonly name?: string;
  readonly instanceId?: string;
  /** A restore fits on a disk of this size. */
  readonly fitsGb?: number;
}

/** Where a page ended: the order of the list, as `listSnapshots` has it. It need not exist any more. */
export interface SnapshotPosition {
  readonly createdAtSeconds: number;
  readonly id: string;
}

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

/** What `listSnapshots` gives, as far as the filter lets it through; behind `after`, at most `limit`. */
export function pageSnapshots(
  db: Db,
  orgId: string,
  filter: SnapshotFilter,
  page: { readonly after?: SnapshotPosition | undefined; readonly limit?: number | undefined },
): Promise<SnapshotRow[]> {
  const { after, limit } = page;
  return filtered(db, orgId, filter)
    .selectAll()
    .$if(after !== undefined, (query) =>
      query.where(isBehind(after ?? { createdAtSeconds: 0, id: '' })),
    )
    .orderBy((eb) => eb('created_at', '/', eb.lit(1000)))
    .orderBy('id')
    .$if(limit !== undefined, (query) => query.limit(limit ?? 0))
    .execute();
}

export async function countSnapshots(
  db: Db,
  orgId: string,
  filter: SnapshotFilter,
): Promise<number> {
  const { count } = await filtered(db, orgId, filter)
    .select((eb) => eb.fn.countAll().as('count'))
    .executeTakeFirstOrThrow();
  return Number(count);
}

/**
 * A text that is another one after every change of the organization's list: one look at an index and its rows, however
 * many are waiting for a change. The sums tell apart what counts alone would not (one deleted, another one made).
 */
export async function snapshotsDigest(db: Db, orgId: string): Promise<string> {
  const rows = await db
    .selectFrom('snapshots')
    .select((eb) => [
      'status',
      eb.fn.countAll().as('count'),
      eb.fn.sum('minimum_disk_size_gb').as('sizes'),
      // Small enough for a sum that stays exact.
      eb.fn.sum(eb('created_at', '%', eb.lit(1_000_003))).as('times'),
      eb.fn.max('id').as('newest'),
    ])
    .where('org_id', '=', orgId)
    .where('deleted_at', 'is', null)
    .groupBy('status')
    .orderBy('status')
    .execute();
  return JSON.stringify(
    rows.map(({ status, count, sizes, times, newest }) => [
      status,
      Number(count),
      Number(sizes),
      Number(times),
      newest,
    ]),
  );
}

function filtered(db: Db, orgId: string, filter: SnapshotFilter) {
  const { status, name, instanceId, fitsGb } = filter;
  return db
    .selectFrom('snapshots')
    .where('org_id', '=', orgId)
    .where('deleted_at', 'is', null)
    .$if(status !== undefined, (query) => query.where('status', '=', status ?? 'READY'))
    .$if(name !== undefined, (query) => query.where('name', '=', name ?? ''))
    .$if(instanceId !== undefined, (query) => query.where('instance_id', '=', instanceId ?? ''))
    .$if(fitsGb !== undefined, (query) => query.where('minimum_disk_size_gb', '<=', fitsGb ?? 0));
}

const isBehind =
  ({ createdAtSeconds, id }: SnapshotPosition) =>
  (eb: ExpressionBuilder<Schema, 'snapshots'>) => {
    const second = eb('created_at', '/', eb.lit(1000));
    return eb.or([
      eb(second, '>', createdAtSeconds),
      eb.and([eb(second, '=', createdAtSeconds), eb('id', '>', id)]),
    ]);
  };

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

/** Which of these names of the engine are ours; deleted snapshots that are not gone yet included. */
export async function filterSnapshotRefs(db: Db, refs: readonly string[]): Promise<string[]> {
  if (refs.length === 0) return [];
  const query = db.selectFrom('snapshots').select('engine_ref');
  const rows = await query.where('engine_ref', 'in', [...refs]).execute();
  return rows.map((row) => row.engine_ref);
}

/** The engine names of all snapshots that are READY and were asked for since then. */
export async function listReadySnapshotRefs(db: Db, since: number): Promise<string[]> {
  const rows = await db
    .selectFrom('snapshots')
    .select('engine_ref')
    .where('status', '=', 'READY')
    .where('deleted_at', 'is', null)
    .where('created_at', '>=', since)
    .execute();
  return rows.map((row) => row.engine_ref);
}

/**
 * Moves a snapshot that is not deleted from one status to another, unless its creation or the undoing of that is under
 * way; undefined when it was not so.
 */
export function moveSnapshot(
  db: Db,
  engineRef: string,
  { from, to }: { readonly from: SnapshotRow['status']; readonly to: SnapshotRow['status'] },
): Promise<{ readonly org_id: string } | undefined> {
  return db
    .updateTable('snapshots')
    .set({ status: to })
    .where('engine_ref', '=', engineRef)
    .where('status', '=', from)
    .where('deleted_at', 'is', null)
    .where((eb) =>
      eb.not(
        eb.exists(
          eb
            .selectFrom('operations')
            .select('operations.id')
            .whereRef('operations.subject_id', '=', 'snapshots.id')
            .where('operations.finished_at', 'is', null),
        ),
      ),
    )
    .returning('org_id')
    .executeTakeFirst();
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
