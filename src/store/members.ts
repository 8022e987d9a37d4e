import type { Insertable } from 'kysely';
import type { Role } from '../domain/scopes.ts';
import type { Db } from './database.ts';
import type { UserRow, UserTable } from './schema.ts';

export async function insertMember(db: Db, row: Insertable<UserTable>): Promise<void> {
  await db.insertInto('users').values(row).execute();
}

/** In the order in which they joined. */
export function listMembers(db: Db, orgId: string): Promise<UserRow[]> {
  return db
    .selectFrom('users')
    .selectAll()
    .where('org_id', '=', orgId)
    .orderBy('created_at')
    .orderBy('email')
    .execute();
}

export function findMember(db: Db, orgId: string, email: string): Promise<UserRow | undefined> {
  return db
    .selectFrom('users')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('email', '=', email)
    .executeTakeFirst();
}

/** The owner who was there first: who an operator's token for the organization belongs to. */
export function findFirstOwner(db: Db, orgId: string): Promise<UserRow | undefined> {
  return db
    .selectFrom('users')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('role', '=', 'owner')
    .orderBy('created_at')
    .orderBy('email')
    .executeTakeFirst();
}

export async function countOwners(db: Db, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom('users')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('org_id', '=', orgId)
    .where('role', '=', 'owner')
    .executeTakeFirstOrThrow();
  return Number(count);
}

export async function setRole(db: Db, orgId: string, id: string, role: Role): Promise<void> {
  await db
    .updateTable('users')
    .set({ role })
    .where('org_id', '=', orgId)
    .where('id', '=', id)
    .execute();
}

/** With every token of the member. */
export async function deleteMember(db: Db, orgId: string, id: string): Promise<void> {
  await db.deleteFrom('tokens').where('org_id', '=', orgId).where('user_id', '=', id).execute();
  await db.deleteFrom('users').where('org_id', '=', orgId).where('id', '=', id).execute();
}
