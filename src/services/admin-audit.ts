import type { Store } from '../store/database.ts';
import { type AuditLine, readAuditPage } from './audit.ts';
import { type VerifiedLog, verifyLogs } from './audit-verification.ts';
import { requireOrganization } from './organizations.ts';

/** The audit logs, for who runs the service. */
export class AdminAuditService {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** The newest lines of an organization, newest first. */
  async list(organization: string, limit: number): Promise<readonly AuditLine[]> {
    const { id } = await requireOrganization(this.#store.db, organization);
    return (await readAuditPage(this.#store.db, id, { limit })).lines;
  }

  /** Every log there is, or that of one organization. */
  async verify(organization?: string): Promise<VerifiedLog[]> {
    if (organization !== undefined) await requireOrganization(this.#store.db, organization);
    return verifyLogs(this.#store, organization);
  }
}
