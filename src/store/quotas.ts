import type { Selectable } from 'kysely';
import type { Db } from './database.ts';
import type { QuotaRow, QuotaTable } from './schema.ts';

export type QuotaLimits = Omit<Selectable<QuotaTable>, 'org_id'>;

/** What the organization has now, in the units of its quotas. */
export type QuotaUse = { readonly [name in keyof QuotaLimits]: number };

export function findQuotas(db: Db, orgId: string): Promise<QuotaRow | undefined> {
  return db.selectFrom('quotas').selectAll().where('org_id', '=', orgId).executeTakeFirst();
}

/**
 * The same, and nobody else gets past this before the transaction ends: an update, though it changes
 * nothing, locks the row in every database.
 */
export function lockQuotas(tx: Db, orgId: string): Promise<QuotaRow | undefined> {
  return tx
    .updateTable('quotas')
    .set((eb) => ({ org_id: eb.ref('org_id') }))
    .where('org_id', '=', orgId)
    .returningAll()
    .executeTakeFirst();
}

/** What is not named stays as it is; null takes a limit away. */
export async function setQuotas(
  db: Db,
  orgId: string,
  limits: Partial<QuotaLimits>,
): Promise<void> {
  const none = { instances: null, cpu_cores: null, disk_gb: null, snapshots: null };
  await db
    .insertInto('quotas')
    .values({ org_id: orgId, ...none, ...limits })
    .onConflict((conflict) => conflict.column('org_id').doUpdateSet({ org_id: orgId, ...limits }))
    .execute();
}

/** Stopped and failed instances count: they hold what they were given until they are deleted. */
export async function sumUse(db: Db, orgId: string): Promise<QuotaUse> {
  const instances = await db
    .selectFrom('instances')
    .where('org_id', '=', orgId)
    .where('deleted_at', 'is', null)
    .select((eb) => [
      eb.fn.countAll<number>().as('instances'),
      eb.fn.coalesce(eb.fn.sum<number>('cpu_cores'), eb.lit(0)).as('cpu_cores'),
      eb.fn.coalesce(eb.fn.sum<number>('disk_size_gb'), eb.lit(0)).as('disk_gb'),
      eb.fn.coalesce(eb.fn.sum<number>('ephemeral_disk_gb'), eb.lit(0)).as('ephemeral_gb'),
    ])
    .executeTakeFirstOrThrow();
  const snapshots = await db
    .selectFrom('snapshots')
    .where('org_id', '=', orgId)
    .where('deleted_at', 'is', null)
    .select((eb) => eb.fn.countAll<number>().as('snapshots'))
    .executeTakeFirstOrThrow();
  return {
    instances: Number(instances.instances),
    cpu_cores: Number(instances.cpu_cores),
    disk_gb: Number(instances.disk_gb) + Number(instances.ephemeral_gb),
    snapshots: Number(snapshots.snapshots),
  };
}
