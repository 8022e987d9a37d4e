import { conflict, invalidRequest, notFound } from '../domain/errors.ts';
import { mintToken, newId } from '../domain/ids.ts';
import type { Store } from '../store/database.ts';
import { isUniqueViolation } from '../store/errors.ts';
import {
  findFirstUser,
  findOrganizationByName,
  insertOrganization,
  insertUser,
} from '../store/organizations.ts';
import { insertToken } from '../store/tokens.ts';
import { shorten } from './context.ts';
import { requireTokenName } from './tokens.ts';

export interface NewOrganization {
  readonly name: string;
  readonly email: string;
}

export interface NewToken {
  /** The name of the organization. */
  readonly organization: string;
  readonly name: string;
  readonly scopes?: readonly string[];
  readonly expiresAt?: Date;
}

/** What an operator does on the machine itself; no caller of the API reaches it. */
export class OrganizationService {
  readonly #store: Store;
  readonly #now: () => number;

  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  async create(input: NewOrganization): Promise<{ id: string; name: string }> {
    requireOrganization(input);
    const organization = {
      id: newId(),
      name: input.name,
      next_identifier: 0,
      created_at: this.#now(),
    };
    const user = {
      id: newId(),
      org_id: organization.id,
      email: input.email,
      created_at: this.#now(),
    };
    try {
      await this.#store.transaction(async (tx) => {
        await insertOrganization(tx, organization);
        await insertUser(tx, user);
      });
    } catch (error) {
      if (isUniqueViolation(error))
        throw conflict(`An organization named "${input.name}" exists already.`);
      throw error;
    }
    return { id: organization.id, name: organization.name };
  }

  /** Makes a token; the answer is the only time that it is shown. */
  async createToken(input: NewToken): Promise<{ token: string }> {
    requireTokenName(input.name);
    const organization = await findOrganizationByName(this.#store.db, input.organization);
    const user = organization && (await findFirstUser(this.#store.db, organization.id));
    if (!user) throw notFound('Organization', shorten(input.organization));
    const minted = mintToken();
    const row = {
      id: newId(),
      org_id: user.org_id,
      user_id: user.id,
      name: input.name,
      created_at: this.#now(),
    };
    const secret = {
      hash: minted.hash,
      prefix: minted.prefix,
      scopes: JSON.stringify(input.scopes ?? ['admin']),
    };
    const expiry = { expires_at: input.expiresAt?.getTime() ?? null, last_used_at: null };
    try {
      await this.#store.transaction((tx) => insertToken(tx, { ...row, ...secret, ...expiry }));
    } catch (error) {
      if (isUniqueViolation(error))
        throw conflict(`A token named "${input.name}" exists already in that organization.`);
      throw error;
    }
    return { token: minted.token };
  }
}

function requireOrganization(input: NewOrganization): void {
  if (!/^[\p{L}\p{N}][\p{L}\p{N} ._-]{0,63}$/u.test(input.name)) {
    throw invalidRequest(
      'An organization name is 1 to 64 letters, digits, spaces, ".", "_" or "-", and starts with a letter or digit.',
    );
  }
  if (input.email.length > 254 || !/^[^\s@]+@[^\s@]+$/.test(input.email)) {
    throw invalidRequest('The e-mail address must look like name@example.org.');
  }
}
