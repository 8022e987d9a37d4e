import { conflict, invalidRequest, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { covers, limitToRole, mostOfRole, parseScopes, type Scope } from '../domain/scopes.ts';
import type { Db, Store } from '../store/database.ts';
import { findFirstOwner } from '../store/members.ts';
import type { UserRow } from '../store/schema.ts';
import { deleteToken, findTokenByName, listTokens } from '../store/tokens.ts';
import { shorten } from './context.ts';
import { requireMember } from './members.ts';
import { auditOperator, lockOrganization, requireOrganization } from './organizations.ts';
import { requireTokenName, storeToken, type TokenView, viewOfToken } from './tokens.ts';

export interface NewAdminToken {
  /** The name of the organization. */
  readonly organization: string;
  readonly name: string;
  /** Whose it is; left out: the owner who was there first. */
  readonly email?: string;
  /** Left out: all that the member's role allows. */
  readonly scopes?: readonly string[];
  readonly expiresAt?: Date;
}

/** A token, and whose it is. */
export interface AdminTokenView extends TokenView {
  readonly email: string;
}

/** Tokens of any organization: for the operator. */
export class AdminTokenService {
  readonly #store: Store;
  readonly #now: () => number;

  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  /** Makes a token; the answer is the only time that it is shown. */
  async create(input: NewAdminToken): Promise<{ token: string }> {
    requireTokenName(input.name);
    const wanted = input.scopes && parseScopes(input.scopes);
    const now = this.#now();
    const token = await this.#store.transaction(async (tx) => {
      const { id: orgId } = await lockOrganization(tx, input.organization);
      const member = await ownerOf(tx, orgId, input.email);
      if (wanted) requireWithinRole(wanted, member);
      const made = await storeToken(tx, {
        id: newId(),
        org_id: orgId,
        user_id: member.id,
        name: input.name,
        scopes: wanted ?? mostOfRole(member.role),
        created_at: now,
        expires_at: input.expiresAt?.getTime() ?? null,
      });
      await auditOperator(tx, orgId, now, { action: 'token.create', subject: input.name });
      return made;
    });
    return { token };
  }

  async list(organization: string): Promise<AdminTokenView[]> {
    const { db } = this.#store;
    const { id } = await requireOrganization(db, organization);
    const rows = await listTokens(db, id);
    return rows.map((row) => ({ ...viewOfToken(row), email: row.email }));
  }

  /** A running service notices within a second, which is how long it remembers a token. */
  async revoke(organization: string, name: string): Promise<void> {
    await this.#store.freeingTransaction(async (tx) => {
      const { id: orgId } = await lockOrganization(tx, organization);
      const token = await findTokenByName(tx, orgId, name);
      if (!token) throw notFound('Token', shorten(name));
      await deleteToken(tx, orgId, token.id);
      await auditOperator(tx, orgId, this.#now(), { action: 'token.delete', subject: name });
    });
  }
}

async function ownerOf(tx: Db, orgId: string, email: string | undefined): Promise<UserRow> {
  if (email !== undefined) return requireMember(tx, orgId, email);
  const owner = await findFirstOwner(tx, orgId);
  if (!owner) throw conflict('The organization has no owner. Say whose token it is with --user.');
  return owner;
}

/** The role limits a token whatever it says; one that says more would only mislead. */
function requireWithinRole(wanted: readonly Scope[], member: UserRow): void {
  const most = limitToRole(['admin'], member.role);
  const excess = wanted.find((scope) => !covers(most, scope));
  if (excess === undefined) return;
  throw invalidRequest(
    `The scope "${excess}" goes beyond the role of ${member.email} (${member.role}), which allows: ${most.join(', ')}.`,
  );
}
