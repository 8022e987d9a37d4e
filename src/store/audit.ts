import type { Insertable } from 'kysely';
import type { Db } from './database.ts';
import type { AuditTable } from './schema.ts';

/** Who asked: what every audited line has in common. Never key material. */
export async function insertAudit(db: Db, row: Insertable<AuditTable>): Promise<void> {
  await db.insertInto('audit_log').values(row).execute();
}
