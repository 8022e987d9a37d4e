import type { Insertable, Selectable } from 'kysely';
import type { Db } from './database.ts';
import type { OrganizationTable } from './schema.ts';

export type OrganizationRow = Selectable<OrganizationTable>;

export async function insertOrganization(
  db: Db,
  row: Insertable<OrganizationTable>,
): Promise<void> {
  await db.insertInto('organizations').values(row).execute();
}

export function findOrganizationByName(db: Db, name: string): Promise<OrganizationRow | undefined> {
  return db.selectFrom('organizations').selectAll().where('name', '=', name).executeTakeFirst();
}

/**
 * The same, and no other change by an operator gets past this before the transaction ends: an update, though it
 * changes nothing, locks the row in every database.
 */
export function lockOrganizationByName(tx: Db, name: string): Promise<OrganizationRow | undefined> {
  return tx
    .updateTable('organizations')
    .set((eb) => ({ name: eb.ref('name') }))
    .where('name', '=', name)
    .returningAll()
    .executeTakeFirst();
}

/** Every one of the service, by name: for the operator. */
export function listOrganizations(db: Db): Promise<OrganizationRow[]> {
  return db.selectFrom('organizations').selectAll().orderBy('name').execute();
}

/** Whether an instance or a snapshot of it is still there, one whose deletion is under way included. */
export async function holdsAnything(db: Db, orgId: string): Promise<boolean> {
  for (const table of ['instances', 'snapshots'] as const) {
    const row = await db
      .selectFrom(table)
      .select('id')
      .where('org_id', '=', orgId)
      .limit(1)
      .executeTakeFirst();
    if (row) return true;
  }
  return false;
}

/** With its members, tokens, quotas and address book. Its audit log stays. */
export async function deleteOrganization(db: Db, orgId: string): Promise<void> {
  for (const table of ['tokens', 'users', 'quotas', 'keys'] as const)
    await db.deleteFrom(table).where('org_id', '=', orgId).execute();
  await db.deleteFrom('organizations').where('id', '=', orgId).execute();
}

/** Takes the next instance number of the organization. */
export async function takeIdentifier(db: Db, orgId: string): Promise<number> {
  const row = await db
    .updateTable('organizations')
    .set((eb) => ({ next_identifier: eb('next_identifier', '+', 1) }))
    .where('id', '=', orgId)
    .returning('next_identifier')
    .executeTakeFirstOrThrow();
  return row.next_identifier - 1;
}
