/**
 * Is the audit log of an organization still what was written? A line that was changed, taken out, put in or moved
 * breaks the chain where it stood; lines missing at the end show in the count and the head that the organization's
 * row keeps. Who can write the database can also rebuild a whole chain: keep a count and its head elsewhere to find
 * that, as docs/operations.md says.
 */
import { chainHash, emptyChainHead } from '../domain/audit-chain.ts';
import {
  type ChainEnd,
  chainEnd,
  listAuditAfter,
  listAuditedOrganizations,
} from '../store/audit.ts';
import type { Db, Store } from '../store/database.ts';
import type { AuditRow } from '../store/schema.ts';

export interface ChainVerdict {
  /** Lines in the chain that are as they were written. */
  readonly lines: number;
  /** The hash of the newest of them; "" when there is none. */
  readonly head: string;
  /** What is wrong with the first line that is not; undefined when all are. */
  readonly problem: string | undefined;
}

const linesAtOnce = 1000;

/** The log of an organization, verified. */
export interface VerifiedLog extends ChainVerdict {
  /** Its name; its id when it was deleted. */
  readonly organization: string;
}

/** Every log there is, or that of one organization; those of deleted organizations are still there. */
export async function verifyLogs(store: Store, name?: string): Promise<VerifiedLog[]> {
  const all = await listAuditedOrganizations(store.db);
  const verified: VerifiedLog[] = [];
  for (const { id, name: known } of all.filter((one) => name === undefined || one.name === name)) {
    verified.push({ organization: known ?? id, ...(await verifyChain(store, id)) });
  }
  return verified;
}

/** How far a log is as it was written: `seen` counts the lines from before the chain too. */
interface Walked extends ChainVerdict {
  readonly seen: number;
}

/** Everything in one transaction: a line that is written meanwhile is not taken for one that was put in. */
export function verifyChain(store: Store, orgId: string): Promise<ChainVerdict> {
  return store.transaction(async (tx) => {
    const end = await chainEnd(tx, orgId);
    const { seen, ...verdict } = await walk(tx, orgId, end?.before);
    if (verdict.problem !== undefined || !end) return verdict;
    return { ...verdict, problem: problemAtEnd(end, seen, verdict.head) };
  });
}

/** `before` lines have no hash, no more and no fewer; when it is not known, those in front of the first that has one. */
async function walk(tx: Db, orgId: string, before: number | undefined): Promise<Walked> {
  let [lines, head, seen, id] = [0, emptyChainHead, 0, Number.MIN_SAFE_INTEGER];
  for (;;) {
    const rows = await listAuditAfter(tx, orgId, { id, limit: linesAtOnce });
    for (const row of rows) {
      const position = seen + 1;
      const isOld = before === undefined ? row.hash === null && lines === 0 : position <= before;
      const expected = isOld ? null : chainHash(head, position, lineOf(row));
      if (row.position !== position || row.hash !== expected)
        return { lines, head, seen, problem: broken(position, row) };
      if (expected !== null) [lines, head] = [lines + 1, expected];
      [seen, id] = [position, row.id];
    }
    if (rows.length < linesAtOnce) return { lines, head, seen, problem: undefined };
  }
}

function problemAtEnd(end: ChainEnd, seen: number, head: string): string | undefined {
  if (end.count === seen && end.head === head) return undefined;
  if (end.count <= seen) return `Line ${end.count} is not the newest that was written.`;
  return `Line ${seen + 1} is missing: ${end.count} were written, ${seen} are there.`;
}

const broken = (position: number, row: AuditRow): string =>
  `Line ${position} (${new Date(row.at).toISOString()}, ${row.action}) is not the one that was written there: it, or the one before it, was changed, removed, put in or moved.`;

const lineOf = (row: AuditRow) => ({
  at: row.at,
  orgId: row.org_id,
  tokenId: row.token_id,
  requestId: row.request_id,
  action: row.action,
  subject: row.subject,
  outcome: row.outcome,
});
