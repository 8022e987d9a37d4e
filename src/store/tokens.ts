import type { Insertable } from 'kysely';
import type { Role } from '../domain/scopes.ts';
import type { Db } from './database.ts';
import type { TokenRow, TokenTable } from './schema.ts';

export interface TokenOwner {
  readonly id: string;
  readonly org_id: string;
  readonly user_id: string;
  readonly scopes: string;
  readonly expires_at: number | null;
  readonly org_name: string;
  readonly email: string;
  readonly role: Role;
}

/** The only look-up that knows no organization yet: the token tells it. */
export function findTokenByHash(db: Db, hash: string): Promise<TokenOwner | undefined> {
  return db
    .selectFrom('tokens')
    .innerJoin('organizations', 'organizations.id', 'tokens.org_id')
    .innerJoin('users', 'users.id', 'tokens.user_id')
    .where('tokens.hash', '=', hash)
    .select([
      'tokens.id as id',
      'tokens.org_id as org_id',
      'tokens.user_id as user_id',
      'tokens.scopes as scopes',
      'tokens.expires_at as expires_at',
      'organizations.name as org_name',
      'users.email as email',
      'users.role as role',
    ])
    .executeTakeFirst();
}

export async function insertToken(db: Db, row: Insertable<TokenTable>): Promise<void> {
  await db.insertInto('tokens').values(row).execute();
}

/** A token, and the member whose it is. */
export type MemberTokenRow = TokenRow & { readonly email: string; readonly role: Role };

const withMembers = (db: Db, orgId: string) =>
  db
    .selectFrom('tokens')
    .innerJoin('users', 'users.id', 'tokens.user_id')
    .selectAll('tokens')
    .select(['users.email as email', 'users.role as role'])
    .where('tokens.org_id', '=', orgId);

export function listTokens(db: Db, orgId: string): Promise<MemberTokenRow[]> {
  return withMembers(db, orgId).orderBy('tokens.created_at').orderBy('tokens.id').execute();
}

export function findToken(db: Db, orgId: string, id: string): Promise<MemberTokenRow | undefined> {
  return withMembers(db, orgId).where('tokens.id', '=', id).executeTakeFirst();
}

export function findTokenByName(
  db: Db,
  orgId: string,
  name: string,
): Promise<TokenRow | undefined> {
  return db
    .selectFrom('tokens')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('name', '=', name)
    .executeTakeFirst();
}

export async function deleteToken(db: Db, orgId: string, id: string): Promise<void> {
  await db.deleteFrom('tokens').where('org_id', '=', orgId).where('id', '=', id).execute();
}

export async function touchToken(db: Db, id: string, usedAt: number): Promise<void> {
  await db.updateTable('tokens').set({ last_used_at: usedAt }).where('id', '=', id).execute();
}
