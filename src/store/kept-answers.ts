import type { Insertable } from 'kysely';
import type { Db } from './database.ts';
import type { KeptAnswerRow, KeptAnswerTable } from './schema.ts';

/** A key of a token, and the organization of both. */
export interface KeptAnswerName {
  readonly orgId: string;
  readonly tokenId: string;
  readonly keyHash: string;
}

/** Takes the key for one request; false when another has it. */
export async function insertKeptAnswer(db: Db, row: Insertable<KeptAnswerTable>): Promise<boolean> {
  const result = await db
    .insertInto('kept_answers')
    .values(row)
    .onConflict((conflict) => conflict.columns(['token_id', 'key_hash']).doNothing())
    .executeTakeFirst();
  return result.numInsertedOrUpdatedRows === 1n;
}

export function findKeptAnswer(db: Db, name: KeptAnswerName): Promise<KeptAnswerRow | undefined> {
  return db
    .selectFrom('kept_answers')
    .selectAll()
    .where('org_id', '=', name.orgId)
    .where('token_id', '=', name.tokenId)
    .where('key_hash', '=', name.keyHash)
    .executeTakeFirst();
}

/** Is the token still there? Deleted with a request under way, it leaves nothing to keep an answer for. */
export async function tokenExists(db: Db, orgId: string, tokenId: string): Promise<boolean> {
  const row = await db
    .selectFrom('tokens')
    .select('id')
    .where('org_id', '=', orgId)
    .where('id', '=', tokenId)
    .executeTakeFirst();
  return row !== undefined;
}

/** Stores the answer of the request that holds the row; false when it holds it no more. */
export async function sealKeptAnswer(
  db: Db,
  orgId: string,
  id: string,
  answer: { sealed: string; expiresAt: number },
): Promise<boolean> {
  const result = await db
    .updateTable('kept_answers')
    .set({ sealed: answer.sealed, expires_at: answer.expiresAt })
    .where('org_id', '=', orgId)
    .where('id', '=', id)
    .where('sealed', 'is', null)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** Gives the key of a request in flight free again; an answer that is kept stays. */
export async function releaseKeptAnswer(db: Db, orgId: string, id: string): Promise<void> {
  await db
    .deleteFrom('kept_answers')
    .where('org_id', '=', orgId)
    .where('id', '=', id)
    .where('sealed', 'is', null)
    .execute();
}

/** Expired, it is as if it were not there. */
export async function dropExpiredAnswer(db: Db, name: KeptAnswerName, now: number): Promise<void> {
  await db
    .deleteFrom('kept_answers')
    .where('org_id', '=', name.orgId)
    .where('token_id', '=', name.tokenId)
    .where('key_hash', '=', name.keyHash)
    .where('expires_at', '<=', now)
    .execute();
}

/** Lets the oldest answers of a token go until fewer than `most` rows are left; false when too many are in flight. */
export async function makeRoom(
  db: Db,
  orgId: string,
  tokenId: string,
  most: number,
): Promise<boolean> {
  const { count } = await db
    .selectFrom('kept_answers')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('org_id', '=', orgId)
    .where('token_id', '=', tokenId)
    .executeTakeFirstOrThrow();
  const tooMany = Number(count) - most + 1;
  if (tooMany <= 0) return true;
  const result = await db
    .deleteFrom('kept_answers')
    .where('id', 'in', (eb) =>
      eb
        .selectFrom('kept_answers')
        .select('id')
        .where('org_id', '=', orgId)
        .where('token_id', '=', tokenId)
        .where('sealed', 'is not', null)
        .orderBy('created_at')
        .orderBy('id')
        .limit(tooMany),
    )
    .executeTakeFirst();
  return Number(result.numDeletedRows) === tooMany;
}

/** Of all organizations: what has expired, and what belongs to a token that has. */
export async function dropExpiredAnswers(db: Db, now: number): Promise<void> {
  await db
    .deleteFrom('kept_answers')
    .where((eb) =>
      eb.or([
        eb('expires_at', '<=', now),
        eb(
          'token_id',
          'in',
          eb.selectFrom('tokens').select('id').where('tokens.expires_at', '<=', now),
        ),
      ]),
    )
    .execute();
}

/** After a restart: nobody works any more on what this node had in flight when it died. */
export async function releaseKeptAnswers(db: Db, owner: string): Promise<void> {
  await db
    .deleteFrom('kept_answers')
    .where('owner', '=', owner)
    .where('sealed', 'is', null)
    .execute();
}
