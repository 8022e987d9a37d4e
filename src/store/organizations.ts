import type { Insertable, Selectable } from 'kysely';
import type { Db } from './database.ts';
import type { OrganizationTable, UserTable } from './schema.ts';

export async function insertOrganization(
  db: Db,
  row: Insertable<OrganizationTable>,
): Promise<void> {
  await db.insertInto('organizations').values(row).execute();
}

export async function insertUser(db: Db, row: Insertable<UserTable>): Promise<void> {
  await db.insertInto('users').values(row).execute();
}

export function findOrganizationByName(
  db: Db,
  name: string,
): Promise<Selectable<OrganizationTable> | undefined> {
  return db.selectFrom('organizations').selectAll().where('name', '=', name).executeTakeFirst();
}

/** The user who was there first: who an operator's token for the organization belongs to. */
export function findFirstUser(db: Db, orgId: string): Promise<Selectable<UserTable> | undefined> {
  return db
    .selectFrom('users')
    .selectAll()
    .where('org_id', '=', orgId)
    .orderBy('created_at')
    .executeTakeFirst();
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
