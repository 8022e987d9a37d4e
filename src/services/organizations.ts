import { conflict, invalidRequest, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import type { Db, Store } from '../store/database.ts';
import { isUniqueViolation } from '../store/errors.ts';
import { insertMember, listMembers } from '../store/members.ts';
import {
  deleteOrganization,
  findOrganizationByName,
  holdsAnything,
  insertOrganization,
  listOrganizations,
  lockOrganizationByName,
  type OrganizationRow,
} from '../store/organizations.ts';
import { findQuotas, type QuotaLimits, type QuotaUse, setQuotas, sumUse } from '../store/quotas.ts';
import { listTokens } from '../store/tokens.ts';
import { audit } from './audit.ts';
import { shorten } from './context.ts';

export interface NewOrganization {
  readonly name: string;
  /** Of its first owner. */
  readonly email: string;
}

/** What an organization may have, and what it has. A limit that is null does not exist. */
export interface Quotas {
  readonly limits: QuotaLimits;
  readonly use: QuotaUse;
}

export interface OrganizationView extends Quotas {
  readonly id: string;
  readonly name: string;
  readonly createdAt: number;
  readonly members: number;
  readonly tokens: number;
}

const noLimits: QuotaLimits = { instances: null, cpu_cores: null, disk_gb: null, snapshots: null };
const largestQuota = 1_000_000_000;

/** Organizations and their quotas: what an operator does on the machine itself; no caller of the API reaches it. */
export class OrganizationService {
  readonly #store: Store;
  readonly #now: () => number;

  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  async create(input: NewOrganization): Promise<{ id: string; name: string }> {
    requireOrganizationName(input.name);
    requireEmail(input.email);
    const now = this.#now();
    const { name } = input;
    const organization = { id: newId(), name, next_identifier: 0, created_at: now };
    const owner = { id: newId(), org_id: organization.id, email: input.email, created_at: now };
    try {
      await this.#store.transaction(async (tx) => {
        await insertOrganization(tx, organization);
        await insertMember(tx, { ...owner, role: 'owner' });
        await this.#audit(tx, organization.id, 'org.create', name);
      });
    } catch (error) {
      if (isUniqueViolation(error))
        throw conflict(`An organization named "${name}" exists already.`);
      throw error;
    }
    return { id: organization.id, name };
  }

  async list(): Promise<OrganizationView[]> {
    const { db } = this.#store;
    const views: OrganizationView[] = [];
    for (const row of await listOrganizations(db)) views.push(await viewOf(db, row));
    return views;
  }

  async show(name: string): Promise<OrganizationView> {
    const { db } = this.#store;
    return viewOf(db, await requireOrganization(db, name));
  }

  /** Only an empty one: what it has is deleted by its members first. Its members and tokens go with it. */
  async delete(name: string): Promise<void> {
    await this.#store.freeingTransaction(async (tx) => {
      const organization = await lockOrganization(tx, name);
      if (await holdsAnything(tx, organization.id)) {
        throw conflict(
          `The organization "${name}" is not empty. Delete its instances and snapshots first, and wait until they are gone.`,
        );
      }
      await this.#audit(tx, organization.id, 'org.delete', name);
      await deleteOrganization(tx, organization.id);
    });
  }

  /** Sets the limits that are named, and answers with all; null takes one away. */
  async setQuotas(name: string, limits: Partial<QuotaLimits>): Promise<Quotas> {
    for (const [quota, limit] of Object.entries(limits)) requireLimit(quota, limit);
    return this.#store.transaction(async (tx) => {
      const { id } = await lockOrganization(tx, name);
      await setQuotas(tx, id, limits);
      const set = Object.entries(limits).map(([quota, limit]) => `${quota}=${limit ?? 'none'}`);
      await this.#audit(tx, id, 'org.quota', set.join(' '));
      return quotasOf(tx, id);
    });
  }

  #audit(tx: Db, orgId: string, action: string, subject: string): Promise<void> {
    return auditOperator(tx, orgId, this.#now(), { action, subject });
  }
}

/** A line of the organization's audit log for what an operator did: no token, no request. */
export function auditOperator(
  tx: Db,
  orgId: string,
  at: number,
  entry: { readonly action: string; readonly subject: string },
): Promise<void> {
  return audit(tx, { orgId, tokenId: null, requestId: null }, at, { ...entry, outcome: 'done' });
}

export async function requireOrganization(db: Db, name: string): Promise<OrganizationRow> {
  const organization = await findOrganizationByName(db, name);
  if (!organization) throw notFound('Organization', shorten(name));
  return organization;
}

/** The same for a change: one operator at a time. */
export async function lockOrganization(tx: Db, name: string): Promise<OrganizationRow> {
  const organization = await lockOrganizationByName(tx, name);
  if (!organization) throw notFound('Organization', shorten(name));
  return organization;
}

async function viewOf(db: Db, row: OrganizationRow): Promise<OrganizationView> {
  return {
    id: row.id,
    name: row.name,
    createdAt: row.created_at,
    members: (await listMembers(db, row.id)).length,
    tokens: (await listTokens(db, row.id)).length,
    ...(await quotasOf(db, row.id)),
  };
}

async function quotasOf(db: Db, orgId: string): Promise<Quotas> {
  const { instances, cpu_cores, disk_gb, snapshots } = (await findQuotas(db, orgId)) ?? noLimits;
  return {
    limits: { instances, cpu_cores, disk_gb, snapshots },
    use: await sumUse(db, orgId),
  };
}

function requireLimit(name: string, limit: number | null): void {
  if (limit === null || (Number.isInteger(limit) && limit >= 0 && limit <= largestQuota)) return;
  throw invalidRequest(
    `The quota "${name}" must be a whole number from 0 to ${largestQuota}, or none.`,
  );
}

function requireOrganizationName(name: string): void {
  if (/^[\p{L}\p{N}][\p{L}\p{N} ._-]{0,63}$/u.test(name)) return;
  throw invalidRequest(
    'An organization name is 1 to 64 letters, digits, spaces, ".", "_" or "-", and starts with a letter or digit.',
  );
}

export function requireEmail(email: string): void {
  if (email.length <= 254 && /^[^\s@\p{C}]+@[^\s@\p{C}]+$/u.test(email)) return;
  throw invalidRequest('The e-mail address must look like name@example.org.');
}
