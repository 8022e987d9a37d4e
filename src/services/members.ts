import { conflict, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import type { Role } from '../domain/scopes.ts';
import type { Db, Store } from '../store/database.ts';
import { isUniqueViolation } from '../store/errors.ts';
import {
  countOwners,
  deleteMember,
  findMember,
  insertMember,
  listMembers,
  setRole,
} from '../store/members.ts';
import type { UserRow } from '../store/schema.ts';
import { shorten } from './context.ts';
import {
  auditOperator,
  lockOrganization,
  requireEmail,
  requireOrganization,
} from './organizations.ts';

export interface MemberView {
  readonly email: string;
  readonly role: Role;
  readonly joinedAt: number;
}

/**
 * Who belongs to an organization, as what: for the operator. A running service notices within a second, which is
 * how long it remembers a token.
 */
export class MemberService {
  readonly #store: Store;
  readonly #now: () => number;

  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  async add(organization: string, email: string, role: Role): Promise<void> {
    requireEmail(email);
    const now = this.#now();
    try {
      await this.#store.transaction(async (tx) => {
        const { id: orgId } = await lockOrganization(tx, organization);
        await insertMember(tx, { id: newId(), org_id: orgId, email, role, created_at: now });
        await auditOperator(tx, orgId, now, { action: 'user.add', subject: `${email} ${role}` });
      });
    } catch (error) {
      if (isUniqueViolation(error))
        throw conflict(
          `${shorten(email)} is a member already. Change the role with: berth admin user role`,
        );
      throw error;
    }
  }

  async list(organization: string): Promise<MemberView[]> {
    const { db } = this.#store;
    const { id } = await requireOrganization(db, organization);
    const rows = await listMembers(db, id);
    return rows.map((row) => ({ email: row.email, role: row.role, joinedAt: row.created_at }));
  }

  /** What the member's tokens may do shrinks with the role, and grows back with it. */
  async setRole(organization: string, email: string, role: Role): Promise<void> {
    await this.#store.transaction(async (tx) => {
      const { id: orgId } = await lockOrganization(tx, organization);
      const member = await requireMember(tx, orgId, email);
      if (role !== 'owner') await requireAnotherOwner(tx, member);
      await setRole(tx, orgId, member.id, role);
      const subject = `${email} ${role}`;
      await auditOperator(tx, orgId, this.#now(), { action: 'user.role', subject });
    });
  }

  /** Ends the member's tokens, too. */
  async remove(organization: string, email: string): Promise<void> {
    await this.#store.freeingTransaction(async (tx) => {
      const { id: orgId } = await lockOrganization(tx, organization);
      const member = await requireMember(tx, orgId, email);
      await requireAnotherOwner(tx, member);
      await deleteMember(tx, orgId, member.id);
      await auditOperator(tx, orgId, this.#now(), { action: 'user.remove', subject: email });
    });
  }
}

export async function requireMember(db: Db, orgId: string, email: string): Promise<UserRow> {
  const member = await findMember(db, orgId, email);
  if (!member) throw notFound('Member', shorten(email));
  return member;
}

/** An organization that nobody owns could not be helped by its members any more. */
async function requireAnotherOwner(tx: Db, member: UserRow): Promise<void> {
  if (member.role !== 'owner' || (await countOwners(tx, member.org_id)) > 1) return;
  throw conflict(
    `${member.email} is the last owner of the organization. Make another member an owner first.`,
  );
}
