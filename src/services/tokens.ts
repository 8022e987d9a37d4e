import { AppError, conflict, invalidRequest, notFound } from '../domain/errors.ts';
import { hashToken, isTokenShaped, mintToken, newId } from '../domain/ids.ts';
import { limitToRole } from '../domain/scopes.ts';
import { isUniqueViolation } from '../store/errors.ts';
import type { TokenRow } from '../store/schema.ts';
import {
  deleteTokenByName,
  findTokenByHash,
  insertToken,
  listTokens,
  touchToken,
} from '../store/tokens.ts';
import { audit } from './audit.ts';
import { type Actor, type ServiceContext, shorten } from './context.ts';

const cacheMs = 1000;
const cacheSize = 10_000;
const touchEveryMs = 60_000;

/** Who is calling, whatever the request. */
export type Caller = Omit<Actor, 'requestId'>;

type CachedActor = { readonly actor: Caller; readonly until: number };

/** Bearer tokens: who is calling, and the caller's own tokens. */
export class TokenService {
  readonly #context: ServiceContext;
  /** Keyed by hash, so that a token stands nowhere in memory longer than its request. */
  readonly #cache = new Map<string, CachedActor>();
  readonly #touchedAt = new Map<string, number>();

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** The caller behind a token; throws `unauthorized`. A deleted token is dead at once on this node. */
  async authenticate(token: string, requestId: string): Promise<Actor> {
    if (!isTokenShaped(token)) throw unauthorized();
    const hash = hashToken(token);
    const cached = this.#cache.get(hash);
    if (cached && cached.until > this.#context.now()) return { ...cached.actor, requestId };
    return { ...(await this.#lookUp(hash)), requestId };
  }

  /** The caller, if the token was authenticated within the last second; undefined means: ask properly. */
  recognize(token: string): Caller | undefined {
    const cached = this.#cache.get(hashToken(token));
    return cached && cached.until > this.#context.now() ? cached.actor : undefined;
  }

  async #lookUp(hash: string): Promise<Caller> {
    const { store, now } = this.#context;
    const owner = await findTokenByHash(store.db, hash);
    if (!owner || (owner.expires_at !== null && owner.expires_at <= now())) throw unauthorized();
    const actor = {
      tokenId: owner.id,
      userId: owner.user_id,
      orgId: owner.org_id,
      orgName: owner.org_name,
      email: owner.email,
      scopes: limitToRole(JSON.parse(owner.scopes) as string[], owner.role),
    };
    if (this.#cache.size >= cacheSize) this.#cache.clear();
    const until = Math.min(now() + cacheMs, owner.expires_at ?? Number.POSITIVE_INFINITY);
    this.#cache.set(hash, { actor, until });
    await this.#touch(owner.id);
    return actor;
  }

  /** `last_used_at` is right to the minute: an exact one would cost every request a commit. */
  async #touch(tokenId: string): Promise<void> {
    const { store, now, log } = this.#context;
    if (now() - (this.#touchedAt.get(tokenId) ?? 0) < touchEveryMs) return;
    if (this.#touchedAt.size >= cacheSize) this.#touchedAt.clear();
    this.#touchedAt.set(tokenId, now());
    await touchToken(store.db, tokenId, now()).catch((error: unknown) =>
      log.warn({ err: error }, 'token not touched'),
    );
  }

  /** A new token of the caller's organization, with the caller's own scopes; shown this once. */
  async create(actor: Actor, name: string): Promise<string> {
    const { store, now } = this.#context;
    requireTokenName(name);
    const minted = mintToken();
    const row = {
      id: newId(),
      org_id: actor.orgId,
      user_id: actor.userId,
      name,
      created_at: now(),
    };
    const secret = {
      hash: minted.hash,
      prefix: minted.prefix,
      scopes: JSON.stringify(actor.scopes),
    };
    try {
      await store.transaction(async (tx) => {
        await insertToken(tx, { ...row, ...secret, expires_at: null, last_used_at: null });
        await audit(tx, actor, now(), { action: 'token.create', subject: name, outcome: 'done' });
      });
    } catch (error) {
      if (isUniqueViolation(error))
        throw conflict(`A token named "${name}" exists already. Choose another name.`);
      throw error;
    }
    return minted.token;
  }

  list(actor: Actor): Promise<TokenRow[]> {
    return listTokens(this.#context.store.db, actor.orgId);
  }

  /** Ends a token of the caller's organization; from the next request on it is a 401. */
  async delete(actor: Actor, name: string): Promise<void> {
    const { store, now } = this.#context;
    const hash = await store.transaction(async (tx) => {
      const deleted = await deleteTokenByName(tx, actor.orgId, name);
      if (deleted)
        await audit(tx, actor, now(), { action: 'token.delete', subject: name, outcome: 'done' });
      return deleted;
    });
    if (!hash) throw notFound('Token', shorten(name));
    this.#cache.delete(hash);
  }
}

export function requireTokenName(name: string): void {
  if (/^[\p{L}\p{N}][\p{L}\p{N} ._@:/+-]{0,63}$/u.test(name)) return;
  throw invalidRequest(
    'The field "name" must be 1 to 64 letters, digits, spaces or any of ._@:/+-, and start with a letter or digit.',
  );
}

const unauthorized = (): AppError =>
  new AppError(
    'unauthorized',
    'The token is missing, malformed, unknown, expired or revoked. Send "Authorization: Bearer <token>".',
  );
