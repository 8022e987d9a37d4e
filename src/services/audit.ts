import { insertAudit } from '../store/audit.ts';
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

export async function audit(db: Db, actor: Actor, at: number, entry: AuditEntry): Promise<void> {
  await insertAudit(db, {
    at,
    org_id: actor.orgId,
    token_id: actor.tokenId,
    request_id: actor.requestId,
    ...entry,
  });
}

/** How slow work that was accepted earlier ended. */
export async function auditOperation(
  db: Db,
  operation: OperationRow,
  at: number,
  outcome: string,
): Promise<void> {
  await insertAudit(db, {
    at,
    org_id: operation.org_id,
    token_id: operation.token_id,
    request_id: null,
    action: operation.kind,
    subject: operation.subject_id,
    outcome,
  });
}

/** The audit log for what never reached a transaction. */
export class AuditService {
  readonly #context: ServiceContext;

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** Records a refusal; that it could not be recorded is logged and refuses nothing more. */
  async refused(actor: Actor, entry: AuditEntry): Promise<void> {
    const { store, now, log } = this.#context;
    await audit(store.db, actor, now(), entry).catch((error: unknown) => {
      log.error({ err: error, ...entry }, 'a refusal was not audited');
    });
  }
}
