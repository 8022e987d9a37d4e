import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

/** Roles, quotas, published ports, the address book of keys, kept answers, and the chain of the audit log. */
export const wholeContract: Migration = {
  up: async (db) => {
    await addRoles(db);
    await createQuotas(db);
    await createPorts(db);
    await createKeys(db);
    await createKeptAnswers(db);
    await chainAudit(db);
  },
};

/** Who was there before roles were could do everything. */
async function addRoles(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable('users')
    .addColumn('role', 'text', (c) => c.notNull().defaultTo('owner'))
    .execute();
}

/** No row, or no number: no limit. */
async function createQuotas(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('quotas')
    .addColumn('org_id', 'text', (c) => c.primaryKey().references('organizations.id'))
    .addColumn('instances', 'integer')
    .addColumn('cpu_cores', 'integer')
    .addColumn('disk_gb', 'integer')
    .addColumn('snapshots', 'integer')
    .execute();
}

/** A port is published for one instance of the host only. */
async function createPorts(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('instance_ports')
    .addColumn('port', 'integer', (c) => c.primaryKey())
    .addColumn('org_id', 'text', (c) => c.notNull())
    .addColumn('instance_id', 'text', (c) =>
      c.notNull().references('instances.id').onDelete('cascade'),
    )
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .execute();
  await db.schema
    .createIndex('instance_ports_instance')
    .on('instance_ports')
    .column('instance_id')
    .execute();
}

async function createKeys(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('keys')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('org_id', 'text', (c) => c.notNull().references('organizations.id'))
    .addColumn('name', 'text', (c) => c.notNull())
    .addColumn('public_key', 'text', (c) => c.notNull())
    .addColumn('key_type', 'text', (c) => c.notNull())
    .addColumn('fingerprint', 'text', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('keys_fingerprint', ['org_id', 'fingerprint'])
    .execute();
  await db.schema
    .createIndex('instance_keys_fingerprint_of_org')
    .on('instance_keys')
    .columns(['org_id', 'fingerprint'])
    .execute();
}

/** Answers to POSTs with an `Idempotency-Key`, sealed under a key that only the caller's token yields. */
async function createKeptAnswers(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('kept_answers')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('org_id', 'text', (c) => c.notNull())
    .addColumn('token_id', 'text', (c) => c.notNull().references('tokens.id').onDelete('cascade'))
    .addColumn('key_hash', 'text', (c) => c.notNull())
    .addColumn('request_hash', 'text', (c) => c.notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('sealed', 'text')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('kept_answers_key', ['token_id', 'key_hash'])
    .execute();
  await db.schema
    .createIndex('kept_answers_expiry')
    .on('kept_answers')
    .column('expires_at')
    .execute();
}

/** Lines written before are outside the chain: `hash` is null. How many they are is kept, so that none can join them. */
async function chainAudit(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('audit_log').addColumn('hash', 'text').execute();
  await db.schema
    .alterTable('audit_log')
    .addColumn('position', 'integer', (c) => c.notNull().defaultTo(0))
    .execute();
  for (const column of ['audit_count', 'audit_before']) {
    await db.schema
      .alterTable('organizations')
      .addColumn(column, 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
  }
  await db.schema
    .alterTable('organizations')
    .addColumn('audit_head', 'text', (c) => c.notNull().defaultTo(''))
    .execute();
  await db.schema
    .createIndex('audit_log_of_org')
    .on('audit_log')
    .columns(['org_id', 'id'])
    .execute();
  await countOldAudit(db);
}

async function countOldAudit(db: Kysely<unknown>): Promise<void> {
  await sql`
    UPDATE audit_log SET position = numbered.position
    FROM (SELECT id, row_number() OVER (PARTITION BY org_id ORDER BY id) AS position FROM audit_log) AS numbered
    WHERE numbered.id = audit_log.id
  `.execute(db);
  await sql`
    UPDATE organizations
    SET audit_before = (SELECT count(*) FROM audit_log WHERE audit_log.org_id = organizations.id)
  `.execute(db);
  await sql`UPDATE organizations SET audit_count = audit_before`.execute(db);
  await db.schema
    .createIndex('audit_log_position')
    .on('audit_log')
    .columns(['org_id', 'position'])
    .unique()
    .execute();
}
