import type { Insertable } from 'kysely';
import type { Db } from './database.ts';
import type { KeyRow, KeyTable } from './schema.ts';

/** Fails on the index when the organization's address book has this key. */
export async function insertBookKey(db: Db, row: Insertable<KeyTable>): Promise<void> {
  await db.insertInto('keys').values(row).execute();
}

/** The organization's address book, oldest first. */
export function listBookKeys(db: Db, orgId: string): Promise<KeyRow[]> {
  return db
    .selectFrom('keys')
    .selectAll()
    .where('org_id', '=', orgId)
    .orderBy('created_at')
    .orderBy('id')
    .execute();
}

export async function countBookKeys(db: Db, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom('keys')
    .select((eb) => eb.fn.countAll().as('count'))
    .where('org_id', '=', orgId)
    .executeTakeFirstOrThrow();
  return Number(count);
}

export function findBookKey(db: Db, orgId: string, id: string): Promise<KeyRow | undefined> {
  return db
    .selectFrom('keys')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('id', '=', id)
    .executeTakeFirst();
}

export function findBookKeyByFingerprint(
  db: Db,
  orgId: string,
  fingerprint: string,
): Promise<KeyRow | undefined> {
  return db
    .selectFrom('keys')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('fingerprint', '=', fingerprint)
    .executeTakeFirst();
}

/** The fingerprint of the deleted one; undefined when there was none. */
export async function deleteBookKey(
  db: Db,
  orgId: string,
  id: string,
): Promise<string | undefined> {
  const deleted = await db
    .deleteFrom('keys')
    .where('org_id', '=', orgId)
    .where('id', '=', id)
    .returning('fingerprint')
    .executeTakeFirst();
  return deleted?.fingerprint;
}
