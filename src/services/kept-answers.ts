/**
 * Answers kept for the sake of `Idempotency-Key`: who repeats a request under the same key gets the same answer again,
 * and the work is not done twice. This is what a client that lost its connection gets its private key back from.
 *
 * A row is taken before the work begins (a unique index decides between two requests at once) and sealed with the
 * answer. Work that makes something hands `keep` its own transaction, so that what was done and the answer that tells
 * of it are durable together or not at all. A row without an answer blocks nobody for long: it goes with a refusal,
 * with the next start of its node, or after a minute.
 *
 * At rest an answer is sealed under a key that only the caller's token yields (domain/sealing.ts), and the caller's
 * idempotency key and request stand there as keyed hashes: the database alone opens and confirms nothing.
 */
import { AppError, conflict } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { deriveKey, keyedHash, seal, unseal } from '../domain/sealing.ts';
import type { Db } from '../store/database.ts';
import {
  dropExpiredAnswer,
  dropExpiredAnswers,
  findKeptAnswer,
  insertKeptAnswer,
  makeRoom,
  releaseKeptAnswer,
  sealKeptAnswer,
  tokenExists,
} from '../store/kept-answers.ts';
import type { KeptAnswerRow } from '../store/schema.ts';
import type { Actor, ServiceContext } from './context.ts';

export const keptForMs = 10 * 60_000;
/** Every answer comes within 25 s: what is still in flight after this is dead. */
const inFlightMs = 60_000;
/** Live keys of one token; the oldest answers go first. */
export const keptPerToken = 1000;

/** An answer, as it went over the wire. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A request that carries a key. */
export interface KeyedRequest {
  /** The caller's own; used here and let go. */
  readonly token: string;
  readonly key: string;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly body: Buffer;
  /** It makes room: a full disk must not stop it here already. */
  readonly frees?: boolean;
}

/** Called in the transaction that makes `result` true; when it rejects, so must the transaction. */
export type OnConfirm<T> = (tx: Db, result: T) => Promise<void>;

/** A key that was taken for a request, until its answer is known. */
export interface OpenAnswer {
  /** Keeps the answer, durable with everything else in `tx`. */
  keep(tx: Db, answer: Answer): Promise<void>;
  /** Keeps the answer of work that is done already; that it could not be kept is logged and harms nobody else. */
  keepAfterwards(answer: Answer): Promise<void>;
  /** Nothing was done: the next request under this key gets a try of its own. */
  release(): Promise<void>;
}

/** Either an answer that was given before, or the right to find one. */
export type Begun = { readonly given: Answer } | { readonly open: OpenAnswer };

/** The hashes that name a request, and what seals its answer. */
interface Names {
  readonly keyHash: string;
  readonly requestHash: string;
  readonly token: string;
}

export class KeptAnswerService {
  readonly #context: ServiceContext;
  readonly #owner: string;

  /** `owner`: the name of this node. */
  constructor(context: ServiceContext, owner: string) {
    this.#context = context;
    this.#owner = owner;
  }

  /** Throws `idempotency_mismatch` for another request under the same key, `conflict` while the first is at work. */
  async begin(actor: Actor, request: KeyedRequest): Promise<Begun> {
    const names = nameRequest(request);
    const row = this.#newRow(actor, names);
    const { store } = this.#context;
    const run = request.frees ? store.freeingTransaction : store.transaction;
    const found = await run((tx) => this.#take(tx, actor, row));
    if (found === undefined) return { open: this.#open(row, names) };
    if (found.request_hash !== names.requestHash) throw otherRequest();
    if (found.sealed === null) throw stillInFlight();
    return { given: openAnswer(found, found.sealed, names) };
  }

  /** Deletes what has expired; never throws. */
  async sweep(): Promise<void> {
    const { store, now, log } = this.#context;
    await store
      .freeingTransaction((tx) => dropExpiredAnswers(tx, now()))
      .catch((error: unknown) => log.warn({ err: error }, 'expired answers were not deleted'));
  }

  /** The row that has the key already; undefined when it is ours now. */
  async #take(tx: Db, actor: Actor, row: KeptAnswerRow): Promise<KeptAnswerRow | undefined> {
    const name = { orgId: actor.orgId, tokenId: actor.tokenId, keyHash: row.key_hash };
    await dropExpiredAnswer(tx, name, row.created_at);
    const found = await findKeptAnswer(tx, name);
    if (found) return found;
    if (!(await tokenExists(tx, actor.orgId, actor.tokenId))) throw tokenGone();
    if (!(await makeRoom(tx, actor.orgId, actor.tokenId, keptPerToken))) throw tooManyInFlight();
    if (await insertKeptAnswer(tx, row)) return undefined;
    throw stillInFlight();
  }

  #newRow(actor: Actor, names: Names): KeptAnswerRow {
    const now = this.#context.now();
    return {
      id: newId(),
      org_id: actor.orgId,
      token_id: actor.tokenId,
      key_hash: names.keyHash,
      request_hash: names.requestHash,
      owner: this.#owner,
      sealed: null,
      created_at: now,
      expires_at: now + inFlightMs,
    };
  }

  #open(row: KeptAnswerRow, names: Names): OpenAnswer {
    const { store, now, log } = this.#context;
    const { id, org_id: orgId } = row;
    const keep = async (tx: Db, answer: Answer) => {
      const sealed = seal(sealingKey(row, names), bindingOf(row), JSON.stringify(answer));
      const expiresAt = now() + keptForMs;
      if (!(await sealKeptAnswer(tx, orgId, id, { sealed, expiresAt }))) throw lostHold();
    };
    return {
      keep,
      keepAfterwards: async (answer) => {
        await store
          .transaction((tx) => keep(tx, answer))
          .catch((error: unknown) => log.warn({ err: error }, 'an answer was not kept'));
      },
      release: async () => {
        await store
          .freeingTransaction((tx) => releaseKeptAnswer(tx, orgId, id))
          .catch((error: unknown) => log.warn({ err: error }, 'a key was not given free'));
      },
    };
  }
}

function nameRequest({ token, key, method, path, body }: KeyedRequest): Names {
  const hashingKey = deriveKey(token, 'berth idempotency names', '');
  return {
    keyHash: keyedHash(hashingKey, ['key', key]),
    requestHash: keyedHash(hashingKey, ['request', method, path, body]),
    token,
  };
}

/** A key for this row alone, so that a nonce never meets the same key twice. */
const sealingKey = (row: KeptAnswerRow, { token }: Names): Buffer =>
  deriveKey(token, 'berth kept answer', row.id);

/** A sealed answer that was moved to another row opens nowhere. */
const bindingOf = (row: KeptAnswerRow): string =>
  JSON.stringify([row.id, row.token_id, row.key_hash, row.request_hash]);

function openAnswer(row: KeptAnswerRow, sealed: string, names: Names): Answer {
  try {
    return JSON.parse(unseal(sealingKey(row, names), bindingOf(row), sealed)) as Answer;
  } catch (error) {
    // To do the work again would be to do it twice.
    throw new AppError(
      'internal',
      'The answer that was kept for this Idempotency-Key is damaged. Look at what was done, and use another key to do it again.',
      { cause: error },
    );
  }
}

const otherRequest = (): AppError =>
  new AppError(
    'idempotency_mismatch',
    'This Idempotency-Key was used for another request (another path or body). Use a new key for each request.',
  );
const stillInFlight = (): AppError =>
  conflict('A request with this Idempotency-Key is still at work. Try again in a moment.');
const tooManyInFlight = (): AppError =>
  new AppError(
    'rate_limited',
    `This token has ${keptPerToken} requests with an Idempotency-Key at work. Try again in a moment.`,
  );
const lostHold = (): AppError =>
  new AppError('unavailable', 'The request took too long to keep its answer. Try again.');
const tokenGone = (): AppError =>
  new AppError('unauthorized', 'The token was revoked. Send a valid one.');
