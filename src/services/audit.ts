import { chainHash } from '../domain/audit-chain.ts';
import { extendChain, insertAudit, listAudit } from '../store/audit.ts';
import type { Db } from '../store/database.ts';
import type { OperationRow } from '../store/schema.ts';
import type { Actor, ServiceContext } from './context.ts';

/** One line of the audit log for something a caller asked for. */
export interface AuditEntry {
  /** What was asked, as `noun.verb`. */
  readonly action: string;
  /** What it was about: a UUID, a name, a fingerprint; never key material. */
  readonly subject: string;
  readonly outcome: string;
}

/** Who a line is about: an `Actor` is one; without a token it is the operator, or the service by itself. */
export interface Origin {
  readonly orgId: string;
  readonly tokenId: string | null;
  readonly requestId: string | null;
}

/** To be called in the transaction that does what the line tells of: both hold, or neither. */
export async function audit(
  tx: Db,
  { orgId, tokenId, requestId }: Origin,
  at: number,
  entry: AuditEntry,
): Promise<void> {
  const line = { orgId, tokenId, requestId, at, ...sound(entry) };
  const { count, head } = await extendChain(tx, orgId);
  await insertAudit(tx, {
    at,
    org_id: orgId,
    token_id: tokenId,
    request_id: requestId,
    action: line.action,
    subject: line.subject,
    outcome: line.outcome,
    hash: chainHash(head, count, line),
    position: count,
  });
}

/** How slow work that was accepted earlier ended. */
export async function auditOperation(
  tx: Db,
  operation: OperationRow,
  at: number,
  outcome: string,
): Promise<void> {
  const { org_id: orgId, token_id: tokenId, kind: action, subject_id: subject } = operation;
  await audit(tx, { orgId, tokenId, requestId: null }, at, { action, subject, outcome });
}

/** As the database will give it back: half a character would come back as another one, and break the chain. */
const sound = ({ action, subject, outcome }: AuditEntry): AuditEntry => ({
  action,
  subject: subject.toWellFormed(),
  outcome: outcome.toWellFormed(),
});

/** One line, as its organization may see it. */
export interface AuditLine {
  /** Which line of the organization's log it is; 1 is the oldest. */
  readonly number: number;
  readonly at: number;
  /** The name of the token; undefined when it is gone, or when nobody asked. */
  readonly token: string | undefined;
  readonly requestId: string | undefined;
  readonly action: string;
  readonly subject: string;
  readonly outcome: string;
  /** Undefined for a line from before there was a chain. */
  readonly hash: string | undefined;
}

export interface AuditPage {
  /** Newest first. */
  readonly lines: readonly AuditLine[];
  /** Continue with the lines before this number; undefined when there are none. */
  readonly before: number | undefined;
}

/** The audit log: what is written for refusals, which reach no transaction, and what an organization reads. */
export class AuditService {
  readonly #context: ServiceContext;

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** Records a refusal; that it could not be recorded is logged and refuses nothing more. */
  async refused(actor: Actor, entry: AuditEntry): Promise<void> {
    const { store, now, log } = this.#context;
    await store
      .transaction((tx) => audit(tx, actor, now(), entry))
      .catch((error: unknown) => {
        log.error({ err: error, ...entry }, 'a refusal was not audited');
      });
  }

  /** The newest lines of the caller's organization, or those before the line of that number. */
  list(actor: Actor, page: { limit: number; before?: number }): Promise<AuditPage> {
    return readAuditPage(this.#context.store.db, actor.orgId, page);
  }
}

/** Lines are counted within their organization: the ids of the table would tell how busy the others are. */
export async function readAuditPage(
  db: Db,
  orgId: string,
  page: { limit: number; before?: number },
): Promise<AuditPage> {
  const { limit, before = Number.MAX_SAFE_INTEGER } = page;
  // One more than asked for tells whether there is another page.
  const rows = await listAudit(db, orgId, { before, limit: limit + 1 });
  const lines = rows.slice(0, limit).map((row) => ({
    number: row.position,
    at: row.at,
    token: row.token_name ?? undefined,
    requestId: row.request_id ?? undefined,
    action: row.action,
    subject: row.subject,
    outcome: row.outcome,
    hash: row.hash ?? undefined,
  }));
  return { lines, before: rows.length > limit ? lines.at(-1)?.number : undefined };
}
