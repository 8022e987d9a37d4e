import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

/** Where instances are, which GPUs they have, and what they were before their host stopped answering. */
export const placing: Migration = {
  up: async (db) => {
    await db.schema.alterTable('instances').addColumn('host', 'text').execute();
    await db.schema.alterTable('instances').addColumn('status_before', 'text').execute();
    await createGpuAllocations(db);
    await createGrowthReservations(db);
    await createPlacingLock(db);
  },
};

/** A GPU, or a part of one, is one instance's alone. */
async function createGpuAllocations(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('gpu_allocations')
    .addColumn('host', 'text', (c) => c.notNull())
    .addColumn('pci', 'text', (c) => c.notNull())
    .addColumn('mig_uuid', 'text', (c) => c.notNull())
    .addColumn('attach', 'text', (c) => c.notNull())
    .addColumn('org_id', 'text', (c) => c.notNull())
    .addColumn('instance_id', 'text', (c) =>
      c.notNull().references('instances.id').onDelete('cascade'),
    )
    .addColumn('reserved_until', 'bigint')
    .addUniqueConstraint('gpu_allocations_device', ['host', 'pci', 'mig_uuid'])
    .execute();
  await db.schema
    .createIndex('gpu_allocations_instance')
    .on('gpu_allocations')
    .column('instance_id')
    .execute();
}

async function createGrowthReservations(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('growth_reservations')
    .addColumn('instance_id', 'text', (c) =>
      c.primaryKey().references('instances.id').onDelete('cascade'),
    )
    .addColumn('org_id', 'text', (c) => c.notNull())
    .addColumn('cpu_cores', 'integer', (c) => c.notNull())
    .addColumn('memory_gb', 'integer', (c) => c.notNull())
    .addColumn('disk_gb', 'integer', (c) => c.notNull())
    .addColumn('reserved_until', 'bigint', (c) => c.notNull())
    .execute();
}

/** One row, which whoever places something locks: of two at once the second sees what the first took. */
async function createPlacingLock(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('placing_lock')
    .addColumn('id', 'integer', (c) => c.primaryKey())
    .execute();
  await sql`insert into placing_lock (id) values (1)`.execute(db);
}
