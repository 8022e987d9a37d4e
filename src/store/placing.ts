/** What hosts are asked to hold, over all organizations: a host has each of its parts once, whoever it is for. */
import type { Db } from './database.ts';
import type { GpuAllocationRow, GrowthReservationRow } from './schema.ts';

export interface HostUse {
  readonly instances: number;
  readonly cpuCores: number;
  readonly memoryGb: number;
  readonly diskGb: number;
}

/**
 * Nobody else gets past this before the transaction ends: an update, though it changes nothing, locks the row in every
 * database. To be called before anything is summed.
 */
export async function lockPlacing(tx: Db): Promise<void> {
  const lock = await tx
    .updateTable('placing_lock')
    .set((eb) => ({ id: eb.ref('id') }))
    .executeTakeFirst();
  if (lock.numUpdatedRows !== 1n) throw new Error('the row that placing locks is not there');
}

/**
 * By host; `null` is where nobody wrote down which. Every row counts, the deleted ones too: a row goes once the engine
 * holds nothing of it. Changes that are under way count with what they add.
 */
export async function sumUseByHost(db: Db, now: number): Promise<Map<string | null, HostUse>> {
  const instances = await db
    .selectFrom('instances')
    .select((eb) => [
      'host',
      eb.fn.countAll<number>().as('instances'),
      eb.fn.sum<number>('cpu_cores').as('cpu_cores'),
      eb.fn.sum<number>('memory_gb').as('memory_gb'),
      eb.fn.sum<number>('disk_size_gb').as('disk_gb'),
      eb.fn.sum<number>('ephemeral_disk_gb').as('ephemeral_gb'),
    ])
    .groupBy('host')
    .execute();
  const growth = await db
    .selectFrom('growth_reservations')
    .innerJoin('instances', 'instances.id', 'growth_reservations.instance_id')
    .where('growth_reservations.reserved_until', '>', now)
    .select((eb) => [
      'instances.host as host',
      eb.fn.sum<number>('growth_reservations.cpu_cores').as('cpu_cores'),
      eb.fn.sum<number>('growth_reservations.memory_gb').as('memory_gb'),
      eb.fn.sum<number>('growth_reservations.disk_gb').as('disk_gb'),
    ])
    .groupBy('instances.host')
    .execute();
  const grows = new Map(growth.map((row) => [row.host, row]));
  return new Map(
    instances.map((row) => {
      const more = grows.get(row.host);
      const use = {
        instances: Number(row.instances),
        cpuCores: Number(row.cpu_cores) + Number(more?.cpu_cores ?? 0),
        memoryGb: Number(row.memory_gb) + Number(more?.memory_gb ?? 0),
        diskGb: Number(row.disk_gb) + Number(row.ephemeral_gb) + Number(more?.disk_gb ?? 0),
      };
      return [row.host, use];
    }),
  );
}

/** Every GPU that somebody has, or wants in a change that is under way. */
export function listTakenGpus(db: Db): Promise<GpuAllocationRow[]> {
  return db.selectFrom('gpu_allocations').selectAll().execute();
}

/** What the instance has; not what a change that is under way wants for it. */
export function listGpus(db: Db, orgId: string, instanceId: string): Promise<GpuAllocationRow[]> {
  return db
    .selectFrom('gpu_allocations')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .where('reserved_until', 'is', null)
    .orderBy('pci')
    .orderBy('mig_uuid')
    .execute();
}

/** False when somebody has it: a device is in the table once. */
export async function insertGpu(db: Db, row: GpuAllocationRow): Promise<boolean> {
  const result = await db
    .insertInto('gpu_allocations')
    .values(row)
    .onConflict((conflict) => conflict.columns(['host', 'pci', 'mig_uuid']).doNothing())
    .executeTakeFirst();
  return (result.numInsertedOrUpdatedRows ?? 0n) === 1n;
}

/** What was wanted is the instance's now. */
export const confirmGpus = (db: Db, orgId: string, gpus: readonly GpuAllocationRow[]) =>
  setReservation(db, orgId, gpus, null);

/** A change that wanted them has failed; the engine may have attached them all the same. */
export const expireGpus = (db: Db, orgId: string, gpus: readonly GpuAllocationRow[], now: number) =>
  setReservation(db, orgId, gpus, now);

async function setReservation(
  db: Db,
  orgId: string,
  gpus: readonly GpuAllocationRow[],
  reservedUntil: number | null,
): Promise<void> {
  for (const { host, pci, mig_uuid, instance_id } of gpus)
    await db
      .updateTable('gpu_allocations')
      .set({ reserved_until: reservedUntil })
      .where('org_id', '=', orgId)
      .where('instance_id', '=', instance_id)
      .where('host', '=', host)
      .where('pci', '=', pci)
      .where('mig_uuid', '=', mig_uuid)
      .execute();
}

export async function deleteGpus(
  db: Db,
  orgId: string,
  gpus: readonly GpuAllocationRow[],
): Promise<void> {
  for (const { host, pci, mig_uuid, instance_id } of gpus)
    await db
      .deleteFrom('gpu_allocations')
      .where('org_id', '=', orgId)
      .where('instance_id', '=', instance_id)
      .where('host', '=', host)
      .where('pci', '=', pci)
      .where('mig_uuid', '=', mig_uuid)
      .execute();
}

export async function insertGrowth(db: Db, row: GrowthReservationRow): Promise<void> {
  await db
    .insertInto('growth_reservations')
    .values(row)
    .onConflict((conflict) => conflict.column('instance_id').doUpdateSet(row))
    .execute();
}

export async function deleteGrowth(db: Db, orgId: string, instanceId: string): Promise<void> {
  await db
    .deleteFrom('growth_reservations')
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .execute();
}

/** Instances with GPUs that a change wanted which has failed or was broken off: for the monitor. */
export async function listInstancesWithLeftovers(db: Db, now: number): Promise<Set<string>> {
  const rows = await db
    .selectFrom('gpu_allocations')
    .select('instance_id')
    .where('reserved_until', '<=', now)
    .execute();
  return new Set(rows.map((row) => row.instance_id));
}

/** To be called when the engine has attached to the instance what the database says, and nothing else. */
export async function releaseLeftovers(
  db: Db,
  orgId: string,
  instanceId: string,
  now: number,
): Promise<void> {
  await db
    .deleteFrom('gpu_allocations')
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .where('reserved_until', '<=', now)
    .execute();
}
