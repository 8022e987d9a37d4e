/** Other callers: made in the database, as `berth admin` makes them. */

import { mintToken, newId } from '../../src/domain/ids.ts';
import type { Scope } from '../../src/domain/scopes.ts';
import type { Workshop } from '../services/workshop.ts';

/** A token of a new organization. */
export async function newTenantToken(shop: Workshop): Promise<string> {
  const { store, context } = shop;
  const orgId = newId();
  const created_at = context.now();
  await store.db
    .insertInto('organizations')
    .values({ id: orgId, name: `tenant-${orgId}`, next_identifier: 0, created_at })
    .execute();
  const userId = newId();
  await store.db
    .insertInto('users')
    .values({ id: userId, org_id: orgId, email: 'other@localhost', created_at })
    .execute();
  return insertToken(shop, { orgId, userId }, ['admin']);
}

/** A token of the workshop's own organization that can do only this. */
export function newScopedToken(shop: Workshop, scopes: readonly Scope[]): Promise<string> {
  return insertToken(shop, shop.actor, scopes);
}

async function insertToken(
  { store, context }: Workshop,
  owner: { readonly orgId: string; readonly userId: string },
  scopes: readonly Scope[],
): Promise<string> {
  const { token, hash, prefix } = mintToken();
  const id = newId();
  await store.db
    .insertInto('tokens')
    .values({
      ...{ id, org_id: owner.orgId, user_id: owner.userId, name: `token ${id}`, prefix, hash },
      ...{ scopes: JSON.stringify(scopes), created_at: context.now() },
      ...{ expires_at: null, last_used_at: null },
    })
    .execute();
  return token;
}
