import type { Insertable } from 'kysely';
import type { Db } from './database.ts';
import type { AuditRow, AuditTable } from './schema.ts';

/** The end of an organization's log: how many lines there are, and the hash of the newest. */
export interface ChainEnd {
  readonly count: number;
  readonly head: string;
}

/**
 * Makes room for one more line: its position, and the hash of the line before it. The organization's row is
 * locked from here to the end of the transaction, so that two transactions never take the same position.
 */
export async function extendChain(db: Db, orgId: string): Promise<ChainEnd> {
  const row = await db
    .updateTable('organizations')
    .set((eb) => ({ audit_count: eb('audit_count', '+', eb.lit(1)) }))
    .where('id', '=', orgId)
    .returning(['audit_count', 'audit_head'])
    .executeTakeFirstOrThrow();
  return { count: row.audit_count, head: row.audit_head };
}

/** Writes the line that room was made for, and makes it the newest of the chain. Never key material. */
export async function insertAudit(
  db: Db,
  row: Insertable<AuditTable> & { hash: string; position: number },
): Promise<void> {
  await db.insertInto('audit_log').values(row).execute();
  await db
    .updateTable('organizations')
    .set({ audit_head: row.hash })
    .where('id', '=', row.org_id)
    .execute();
}

/** With the number of lines from before the chain. Undefined when the organization was deleted; its lines stay. */
export async function chainEnd(
  db: Db,
  orgId: string,
): Promise<(ChainEnd & { readonly before: number }) | undefined> {
  const row = await db
    .selectFrom('organizations')
    .select(['audit_count', 'audit_before', 'audit_head'])
    .where('id', '=', orgId)
    .executeTakeFirst();
  return row && { count: row.audit_count, before: row.audit_before, head: row.audit_head };
}

/** Every organization, and those that are gone but for their lines: for the operator. */
export async function listAuditedOrganizations(
  db: Db,
): Promise<{ id: string; name: string | null }[]> {
  const living = await db
    .selectFrom('organizations')
    .select(['id', 'name'])
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  const known = new Set(living.map(({ id }) => id));
  const logged = await db
    .selectFrom('audit_log')
    .select('org_id as id')
    .distinct()
    .orderBy('org_id')
    .execute();
  const gone = logged.filter(({ id }) => !known.has(id)).map(({ id }) => ({ id, name: null }));
  return [...living, ...gone];
}

/** A line, and what its token is called while there is one. */
export type NamedAuditRow = AuditRow & { readonly token_name: string | null };

/** The newest lines below this position, newest first. The index yields them: a page costs the page. */
export function listAudit(
  db: Db,
  orgId: string,
  range: { before: number; limit: number },
): Promise<NamedAuditRow[]> {
  return db
    .selectFrom('audit_log')
    .leftJoin('tokens', (join) =>
      join
        .onRef('tokens.id', '=', 'audit_log.token_id')
        .onRef('tokens.org_id', '=', 'audit_log.org_id'),
    )
    .selectAll('audit_log')
    .select('tokens.name as token_name')
    .where('audit_log.org_id', '=', orgId)
    .where('audit_log.position', '<', range.before)
    .orderBy('audit_log.position', 'desc')
    .limit(range.limit)
    .execute();
}

/** The next lines behind the one with this id, in the order of the chain. */
export function listAuditAfter(
  db: Db,
  orgId: string,
  after: { id: number; limit: number },
): Promise<AuditRow[]> {
  return db
    .selectFrom('audit_log')
    .selectAll()
    .where('org_id', '=', orgId)
    .where('id', '>', after.id)
    .orderBy('id')
    .limit(after.limit)
    .execute();
}
