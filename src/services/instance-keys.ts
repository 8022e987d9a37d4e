/**
 * Adding a key to a running instance, and reading and removing keys.
 *
 * A supplied key is written by the engine first and recorded after: one durable commit. Killed in between, the
 * key is in the file, nobody was told so, and the caller's retry finds it present. When its request fails after that,
 * its line is recorded as `pending` and taken back, now or later; a retry that goes well makes it `active`.
 *
 * A generated pair is recorded as `pending` first, written, and made `active` in the same breath as the answer
 * leaves: two commits. Its private half exists in this process and in the answer only. Whatever is still pending
 * when nobody works on it (we were killed, the caller hung up) is of no use to anyone, and is taken back.
 *
 * With `onConfirm` the answer becomes durable in the commit that makes the key active: it can be asked for again, so a
 * caller that hung up changes nothing.
 */
import type { AddKeyOutcome, AuthorizedKey } from '../domain/authorized-keys.ts';
import { AppError, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import type { KeyedLock } from '../domain/keyed-lock.ts';
import { generateKeyPair } from '../domain/ssh-key-pair.ts';
import { parsePublicKey, type SshPublicKey } from '../domain/ssh-public-key.ts';
import { EngineError } from '../engines/engine.ts';
import type { Db } from '../store/database.ts';
import {
  confirmKey,
  deleteKey,
  listKeys,
  recordKey,
  recordLeftKey,
  withdrawKey,
} from '../store/instance-keys.ts';
import type { InstanceKeyRow, InstanceRow } from '../store/schema.ts';
import { audit } from './audit.ts';
import type { Actor, ServiceContext } from './context.ts';
import { requireInstance, requireState, requireUp } from './context.ts';
import { explainEngineError, withDeadline } from './engine-errors.ts';
import { inTurn } from './in-turn.ts';
import type { OnConfirm } from './kept-answers.ts';
import { proveLogin } from './login-probe.ts';

/** An answer comes within 25 s: waiting for its turn, the engine, and the proof of the login (5 s) together. */
const turnPatienceMs = 8_000;
const engineDeadlineMs = 10_000;
const takeBackDeadlineMs = 8_000;
/** What a supplied key that fails has left of the 25 s. */
const takeBackLineDeadlineMs = 1_500;

export interface AddKeyInput {
  /** As the caller sent it; absent: a pair is generated. */
  readonly publicKey?: string;
  readonly verify: boolean;
  readonly expiresInSeconds?: number;
}

export interface AddedKey {
  readonly uuid: string;
  /** The generated private key; "" for a supplied one. */
  readonly privateKey: string;
  readonly message: string;
  /** To be called when the answer could not be sent; does nothing where it can be asked for again. */
  readonly takeBack: () => Promise<void>;
}

/** What a kept answer is made of. */
export type ConfirmedKey = Omit<AddedKey, 'takeBack'>;

/** One request to add a key, read and checked. */
interface KeyRequest {
  readonly actor: Actor;
  readonly instance: InstanceRow;
  readonly key: SshPublicKey;
  readonly entry: AuthorizedKey;
  readonly verify: boolean;
  readonly onConfirm: OnConfirm<ConfirmedKey> | undefined;
}

const about = ({ instance, key: { fingerprint } }: KeyRequest) => {
  return { instance: instance.id, fingerprint };
};

const nothing = async (): Promise<void> => {};

export class InstanceKeyService {
  readonly #context: ServiceContext;
  readonly #locks: KeyedLock;
  /** Pending keys that a request of this process is still working on: not for the sweeper. */
  readonly inFlight = new Set<string>();

  readonly #requireFewLeft: (instance: InstanceRow) => Promise<void>;

  /** `requireFewLeft`: throws when too many keys of an instance are yet to be taken back. */
  constructor(
    context: ServiceContext,
    locks: KeyedLock,
    requireFewLeft: (instance: InstanceRow) => Promise<void>,
  ) {
    this.#context = context;
    this.#locks = locks;
    this.#requireFewLeft = requireFewLeft;
  }

  /** Adds a key to a running instance. Resolved: the line is in the file, on the disk, and sshd reads that file. */
  async add(
    actor: Actor,
    reference: string,
    input: AddKeyInput,
    onConfirm?: OnConfirm<ConfirmedKey>,
  ): Promise<AddedKey> {
    const key = input.publicKey === undefined ? undefined : parsePublicKey(input.publicKey);
    const instance = await requireInstance(this.#context.store.db, actor, reference);
    requireState('add_key', instance);
    const { expiresInSeconds: seconds } = input;
    const expiresAt = seconds && new Date(Math.floor(this.#context.now() / 1000 + seconds) * 1000);
    const request = (parsed: SshPublicKey): KeyRequest => {
      const entry = { publicKey: parsed.line, ...(expiresAt && { expiresAt }) };
      return { actor, instance, key: parsed, entry, verify: input.verify, onConfirm };
    };
    return key ? this.#addSupplied(request(key)) : this.#addGenerated(request);
  }

  async #addSupplied(request: KeyRequest): Promise<AddedKey> {
    const { instance, key } = request;
    const lockKey = `${instance.id} ${key.fingerprint}`;
    const confirmed = await inTurn(this.#locks, lockKey, turnPatienceMs, () =>
      this.#writeSupplied(request),
    ).catch((error: unknown) => {
      throw explainEngineError(error);
    });
    return { ...confirmed, takeBack: nothing };
  }

  async #writeSupplied(request: KeyRequest): Promise<ConfirmedKey> {
    const outcome = await this.#write(request);
    try {
      await this.#prove(request);
      return await this.#recordSupplied(request, outcome);
    } catch (error) {
      if (outcome.outcome === 'added') await this.#takeBackLine(request, outcome.line);
      throw error;
    }
  }

  async #addGenerated(toRequest: (key: SshPublicKey) => KeyRequest): Promise<AddedKey> {
    const pair = generateKeyPair('berth-generated');
    const request = toRequest(pair.publicKey);
    const { instance, key, onConfirm } = request;
    const message = `A new key ${key.fingerprint} was added to instance ${instance.identifier}; its private half is shown this once.`;
    const confirmed = { uuid: instance.id, privateKey: pair.privateKey, message };
    const id = newId();
    this.inFlight.add(id);
    try {
      await this.#recordPending(request, id);
      await this.#writeGenerated(request, id, confirmed).catch(async (error: unknown) => {
        await this.#takeBack(request, id);
        throw error;
      });
    } finally {
      this.inFlight.delete(id);
    }
    return { ...confirmed, takeBack: onConfirm ? nothing : () => this.#takeBack(request, id) };
  }

  async #recordPending(request: KeyRequest, id: string): Promise<void> {
    const { instance } = request;
    await this.#requireFewLeft(instance);
    const row = this.#row(request, id, 'generated', 'pending');
    const recorded = await this.#context.store.transaction((tx) => recordKey(tx, row));
    if (!recorded) throw notFound('Instance', String(instance.identifier));
  }

  async #writeGenerated(request: KeyRequest, id: string, result: ConfirmedKey): Promise<void> {
    const { store, crashPoint } = this.#context;
    crashPoint('add_key:recorded:after');
    await this.#write(request);
    crashPoint('add_key:written:after');
    await this.#prove(request);
    await store.transaction((tx) => this.#confirm(tx, request, id, result));
    crashPoint('add_key:confirmed:after');
  }

  async #confirm(tx: Db, request: KeyRequest, id: string, result: ConfirmedKey): Promise<void> {
    const { actor, instance, key } = request;
    const subject = `${instance.id} ${key.fingerprint}`;
    const entry = { action: 'key.add', subject, outcome: 'generated' };
    await audit(tx, actor, this.#context.now(), entry);
    if (!(await confirmKey(tx, id))) throw notFound('Instance', String(instance.identifier));
    await request.onConfirm?.(tx, result);
  }

  /** The engine's part. Late or failed, nothing of this request stays behind. */
  async #write(request: KeyRequest): Promise<AddKeyOutcome> {
    const work = this.#context.engine.addKey(request.instance.engine_ref, request.entry);
    try {
      return await withDeadline(work, engineDeadlineMs);
    } catch (error) {
      void this.#takeBackLate(request, work);
      await requireUp(this.#context.store.db, request.actor, request.instance.id);
      throw explainEngineError(error);
    }
  }

  /** The line of an add that failed for its caller, and was done all the same; unless another request was told of it. */
  async #takeBackLate(request: KeyRequest, work: Promise<AddKeyOutcome>): Promise<void> {
    const { instance, key } = request;
    const late = await work.catch((error: unknown) =>
      error instanceof EngineError ? error.outcome : undefined,
    );
    if (late?.outcome !== 'added') return;
    await this.#locks
      .run(`${instance.id} ${key.fingerprint}`, async () => {
        const rows = await listKeys(this.#context.store.db, instance.org_id, instance.id);
        const own = rows.find(({ fingerprint }) => fingerprint === key.fingerprint);
        if (own?.state !== 'active') await this.#takeBackLine(request, late.line);
      })
      .catch((error: unknown) => {
        const fields = { ...about(request), err: error };
        this.#context.log.error(fields, 'a key could not be taken back');
      });
  }

  async #prove({ actor, instance, key, verify }: KeyRequest): Promise<void> {
    const { id, ip, port, identifier } = instance;
    if (!verify) return;
    if (ip === null || port === null)
      throw new AppError('conflict', `Instance ${identifier} has no address yet.`);
    await proveLogin({ ip, port }, key).catch(async (error: unknown) => {
      await requireUp(this.#context.store.db, actor, id);
      throw error;
    });
  }

  async #recordSupplied(request: KeyRequest, added: AddKeyOutcome): Promise<ConfirmedKey> {
    const { store, now } = this.#context;
    const { actor, instance, key } = request;
    const said = added.outcome === 'added' ? 'was added to' : 'is already authorized on';
    const message = `The key ${key.fingerprint} ${said} instance ${instance.identifier}.`;
    const confirmed = { uuid: instance.id, privateKey: '', message };
    await store.transaction(async (tx) => {
      const subject = `${instance.id} ${key.fingerprint}`;
      await audit(tx, actor, now(), { action: 'key.add', subject, outcome: added.outcome });
      const recorded = await recordKey(tx, this.#row(request, newId(), 'supplied', 'active'));
      if (!recorded) throw notFound('Instance', String(instance.identifier));
      await request.onConfirm?.(tx, confirmed);
    });
    return confirmed;
  }

  #row(
    request: KeyRequest,
    id: string,
    source: InstanceKeyRow['source'],
    state: InstanceKeyRow['state'],
  ): InstanceKeyRow {
    const { instance, key, entry } = request;
    return {
      id,
      org_id: instance.org_id,
      instance_id: instance.id,
      public_key: key.line,
      key_type: key.type,
      fingerprint: key.fingerprint,
      comment: key.comment,
      source,
      state,
      added_at: this.#context.now(),
      expires_at: entry.expiresAt?.getTime() ?? null,
    };
  }

  /** Of a supplied key whose request failed. Recorded first: if the engine cannot do it now, the sweeper does it later. */
  async #takeBackLine(request: KeyRequest, line: string): Promise<void> {
    const { engine, store, log } = this.#context;
    const row = this.#row(request, newId(), 'supplied', 'pending');
    // A database that takes no more is no reason to leave the line where it is.
    await recordLeftKey(store.db, row).catch((error: unknown) => {
      log.error({ ...about(request), err: error }, 'a key to be taken back is not recorded');
    });
    try {
      const removal = engine.removeKey(request.instance.engine_ref, { kind: 'line', line });
      await withDeadline(removal, takeBackLineDeadlineMs);
      await deleteKey(store.db, row.id);
    } catch (error) {
      log.warn({ ...about(request), err: error }, 'a key will be taken back later');
    }
  }

  /** If the engine cannot do it now, the row stays pending and the sweeper does it later. */
  async #takeBack(request: KeyRequest, id: string): Promise<void> {
    const { engine, store, log } = this.#context;
    const { instance, key } = request;
    try {
      await withdrawKey(store.db, id);
      const match = { kind: 'key', publicKey: key.line } as const;
      await withDeadline(engine.removeKey(instance.engine_ref, match), takeBackDeadlineMs);
      await deleteKey(store.db, id);
      log.info(about(request), 'a key whose answer was not sent was taken back');
    } catch (error) {
      log.warn({ ...about(request), err: error }, 'a key will be taken back later');
    }
  }
}
