import { AppError, conflict, invalidRequest, notFound } from '../domain/errors.ts';
import { hashToken, isTokenShaped, mintToken, newId } from '../domain/ids.ts';
import { covers, limitToRole, parseScopes, type Scope } from '../domain/scopes.ts';
import type { Db } from '../store/database.ts';
import { isUniqueViolation } from '../store/errors.ts';
import {
  deleteToken,
  findToken,
  findTokenByHash,
  findTokenByName,
  insertToken,
  listTokens,
  type MemberTokenRow,
  touchToken,
} from '../store/tokens.ts';
import { audit } from './audit.ts';
import { type Actor, type ServiceContext, shorten } from './context.ts';
import type { OnConfirm } from './kept-answers.ts';

const cacheMs = 1000;
const cacheSize = 10_000;
const touchEveryMs = 60_000;

/** A token that is asked for. */
export interface NewToken {
  readonly name: string;
  /** Left out: the maker's own. */
  readonly scopes?: readonly string[];
  /** Left out: as long as the maker. */
  readonly expiresInSeconds?: number;
}

/** A token without its secret. Times are milliseconds since the Unix epoch. */
export interface TokenView {
  readonly name: string;
  readonly prefix: string;
  /** As far as the member's role still goes. */
  readonly scopes: readonly Scope[];
  readonly createdAt: number;
  readonly lastUsedAt: number | null;
  readonly expiresAt: number | null;
}

/** Who is calling, whatever the request. */
export type Caller = Omit<Actor, 'requestId'>;

type CachedActor = { readonly actor: Caller; readonly until: number };

/** Bearer tokens: who is calling, and the caller's own tokens. */
export class TokenService {
  readonly #context: ServiceContext;
  /** Keyed by hash, so that a token stands nowhere in memory longer than its request. */
  readonly #cache = new Map<string, CachedActor>();
  readonly #touchedAt = new Map<string, number>();
  /** Counts deletions, so that a token looked up before one is not remembered after it. */
  #forgotten = 0;

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** The caller behind a token; throws `unauthorized`. A deleted token is dead at once on this node. */
  async authenticate(token: string, requestId: string): Promise<Actor> {
    if (!isTokenShaped(token)) throw unauthorized();
    const hash = hashToken(token);
    const cached = this.#cache.get(hash);
    if (isFresh(cached, this.#context.now())) return { ...cached.actor, requestId };
    return { ...(await this.#lookUp(hash)), requestId };
  }

  /** The caller, if the token was authenticated within the last second; undefined means: ask properly. */
  recognize(token: string): Caller | undefined {
    const cached = this.#cache.get(hashToken(token));
    return isFresh(cached, this.#context.now()) ? cached.actor : undefined;
  }

  /** True for a token that was valid when it was last used here; it may have ended meanwhile. */
  wasValid(token: string): boolean {
    return this.#cache.has(hashToken(token));
  }

  async #lookUp(hash: string): Promise<Caller> {
    const { store, now } = this.#context;
    const forgotten = this.#forgotten;
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
    if (this.#forgotten === forgotten) this.#cache.set(hash, { actor, until });
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

  /** A new token of the caller's organization, which never has more than the one it is made with; shown this once. */
  async create(actor: Actor, input: NewToken, onConfirm?: OnConfirm<string>): Promise<string> {
    const { store, now } = this.#context;
    requireTokenName(input.name);
    const wanted = input.scopes && parseScopes(input.scopes);
    return store.transaction(async (tx) => {
      const at = now();
      const maker = await requireMaker(tx, actor, at);
      const token = await storeToken(tx, {
        id: newId(),
        org_id: actor.orgId,
        user_id: maker.user_id,
        name: input.name,
        scopes: scopesWithin(maker, wanted),
        created_at: at,
        expires_at: expiryWithin(maker, input.expiresInSeconds, at),
      });
      await audit(tx, actor, at, { action: 'token.create', subject: input.name, outcome: 'done' });
      await onConfirm?.(tx, token);
      return token;
    });
  }

  async list(actor: Actor): Promise<TokenView[]> {
    return (await listTokens(this.#context.store.db, actor.orgId)).map(viewOfToken);
  }

  /** Ends a token of the caller's organization; from the next request on it is a 401. */
  async delete(actor: Actor, name: string): Promise<void> {
    const { store, now } = this.#context;
    const hash = await store.freeingTransaction(async (tx) => {
      const token = await findTokenByName(tx, actor.orgId, name);
      if (!token) throw notFound('Token', shorten(name));
      if (token.id !== actor.tokenId && !covers(actor.scopes, 'admin')) throw onlyItself();
      await deleteToken(tx, actor.orgId, token.id);
      await audit(tx, actor, now(), { action: 'token.delete', subject: name, outcome: 'done' });
      return token.hash;
    });
    this.#forgotten += 1;
    this.#cache.delete(hash);
  }
}

/** Writes a new token and answers with it: what is kept of it is a hash. */
export async function storeToken(
  tx: Db,
  row: Omit<MemberTokenRow, 'prefix' | 'hash' | 'scopes' | 'last_used_at' | 'email' | 'role'> & {
    readonly scopes: readonly Scope[];
  },
): Promise<string> {
  const { token, hash, prefix } = mintToken();
  const scopes = JSON.stringify(row.scopes);
  try {
    await insertToken(tx, { ...row, hash, prefix, scopes, last_used_at: null });
  } catch (error) {
    if (isUniqueViolation(error))
      throw conflict(`A token named "${row.name}" exists already. Choose another name.`);
    throw error;
  }
  return token;
}

/** Not for as long as the clock was put back: a token that was revoked beside the service has to end. */
const isFresh = (cached: CachedActor | undefined, now: number): cached is CachedActor =>
  cached !== undefined && cached.until > now && cached.until <= now + cacheMs;

/** Field by field, so that a new column never shows. */
export const viewOfToken = (row: MemberTokenRow): TokenView => ({
  name: row.name,
  prefix: row.prefix,
  scopes: limitToRole(JSON.parse(row.scopes) as string[], row.role),
  createdAt: row.created_at,
  lastUsedAt: row.last_used_at,
  expiresAt: row.expires_at,
});

/** The caller's token as it is in this transaction: it may have ended, or shrunk, since the request came in. */
async function requireMaker(tx: Db, actor: Actor, now: number): Promise<MemberTokenRow> {
  const maker = await findToken(tx, actor.orgId, actor.tokenId);
  if (!maker || (maker.expires_at !== null && maker.expires_at <= now)) throw unauthorized();
  return maker;
}

function scopesWithin(maker: MemberTokenRow, wanted: readonly Scope[] | undefined): Scope[] {
  const { scopes } = viewOfToken(maker);
  const excess = wanted?.find((scope) => !covers(scopes, scope));
  if (excess !== undefined || scopes.length === 0) {
    throw new AppError(
      'forbidden',
      `A token cannot give what it lacks${excess ? `: the scope "${excess}"` : ''}. Yours has: ${scopes.join(', ') || 'none'}.`,
    );
  }
  return [...(wanted ?? scopes)];
}

function expiryWithin(
  maker: MemberTokenRow,
  seconds: number | undefined,
  now: number,
): number | null {
  if (seconds === undefined) return maker.expires_at;
  const expiresAt = now + seconds * 1000;
  if (maker.expires_at === null || expiresAt <= maker.expires_at) return expiresAt;
  const left = Math.floor((maker.expires_at - now) / 1000);
  throw invalidRequest(
    `The field "expires_in_seconds" is ${seconds}, but the token of this request ends in ${left} seconds: none made with it lives longer.`,
  );
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

const onlyItself = (): AppError =>
  new AppError(
    'forbidden',
    'This token may delete no token but itself: it lacks the scope admin. Ask an owner of the organization.',
  );
