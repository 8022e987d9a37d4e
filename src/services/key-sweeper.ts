import { type KeyMatch, keyLine } from '../domain/authorized-keys.ts';
import { conflict } from '../domain/errors.ts';
import type { KeyedLock } from '../domain/keyed-lock.ts';
import {
  deleteKey,
  isPending,
  listPendingKeyIds,
  listPendingKeys,
} from '../store/instance-keys.ts';
import { getInstance } from '../store/instances.ts';
import type { InstanceKeyRow, InstanceRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';
import { withDeadline } from './engine-errors.ts';
import { inTurn } from './in-turn.ts';

export interface KeySweeperOptions {
  readonly context: ServiceContext;
  /** Keys that a request is still working on. */
  readonly keysInFlight: ReadonlySet<string>;
  /** By instance and fingerprint: those of the requests. */
  readonly locks: KeyedLock;
  /** How long one instance may take up a turn. */
  readonly turnMs?: number;
}

interface Standing {
  /** The look that it last had a turn in. */
  readonly look: number;
  /** In a row. */
  readonly failures: number;
  readonly notBefore: number;
}

const defaultTurnMs = 10_000;
const turnsAtOnce = 16;
/** Of one instance: a guest that hangs gets no more of them. */
const mostLeftKeys = 16;
const firstRestMs = 4_000;
const longestRestMs = 120_000;

/**
 * Takes back keys that nobody is working on any more and nobody was told of: generated ones, whose private half nobody
 * has, and the lines of supplied ones whose requests failed.
 *
 * The guest does part of the work, and its owner can make it hang. So an instance has one turn at a time, a short one,
 * beside those of others, and a rest after a failure, twice as long each time: nobody else waits for it.
 */
export class KeySweeper {
  readonly #options: KeySweeperOptions;
  readonly #context: ServiceContext;
  readonly #turnMs: number;
  /** Instances whose turn it is. */
  readonly #busy = new Set<string>();
  /** Of instances that have had a turn and are not done. */
  readonly #standings = new Map<string, Standing>();
  #looks = 0;

  constructor(options: KeySweeperOptions) {
    this.#options = options;
    this.#context = options.context;
    this.#turnMs = options.turnMs ?? defaultTurnMs;
  }

  /** Resolves when the turns that it began are over; never throws. May be called while another look is under way. */
  async look(): Promise<void> {
    this.#looks += 1;
    try {
      const waiting = await this.#waiting();
      const lanes = Math.max(0, turnsAtOnce - this.#busy.size);
      await Promise.all(Array.from({ length: lanes }, () => this.#takeTurns(waiting)));
    } catch (error) {
      this.#context.log.warn({ err: error }, 'keys to be taken back could not be looked for');
    }
  }

  /**
   * Throws `conflict` when too many keys of an instance are left. A guest that answers again is rid of them at once,
   * whether it rests or not.
   */
  async requireFewLeft(instance: InstanceRow): Promise<void> {
    if ((await this.#leftOn(instance)).length < mostLeftKeys) return;
    const sweep = this.#turnNow(instance);
    await withDeadline(sweep, this.#turnMs / 2).catch(() => undefined);
    const left = (await this.#leftOn(instance)).length;
    if (left < mostLeftKeys) return;
    throw conflict(
      `${left} keys of instance ${instance.identifier}, whose answers were not sent, are still being taken back. Try again in a minute, or restart the instance if it hangs.`,
    );
  }

  async #leftOn({ id, org_id }: InstanceRow): Promise<string[]> {
    const pending = await listPendingKeyIds(this.#context.store.db, org_id, id);
    return pending.filter((key) => !this.#options.keysInFlight.has(key));
  }

  #turnNow({ id }: InstanceRow): Promise<void> {
    return this.#unlessBusy(id, async () => {
      const pending = await listPendingKeys(this.#context.store.db);
      await this.#turn(pending.filter((key) => key.instance_id === id));
    });
  }

  /** Whose turn it is already gets no second one beside it. */
  async #unlessBusy(id: string, work: () => Promise<void>): Promise<void> {
    if (this.#busy.has(id)) return;
    this.#busy.add(id);
    try {
      await work();
    } finally {
      this.#busy.delete(id);
    }
  }

  /** Instances with their keys, those first that have waited longest for a turn. */
  async #waiting(): Promise<[string, InstanceKeyRow[]][]> {
    const pending = await listPendingKeys(this.#context.store.db);
    const keys = Map.groupBy(pending, (key) => key.instance_id);
    for (const id of this.#standings.keys()) if (!keys.has(id)) this.#standings.delete(id);
    const now = this.#context.now();
    const lastLook = ([id]: [string, unknown]) => this.#standings.get(id)?.look ?? 0;
    return [...keys]
      .filter(([id]) => (this.#standings.get(id)?.notBefore ?? 0) <= now)
      .sort((one, other) => lastLook(one) - lastLook(other));
  }

  async #takeTurns(waiting: [string, InstanceKeyRow[]][]): Promise<void> {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const [id, keys] = next;
      await this.#unlessBusy(id, () => this.#turnOrRest(id, keys));
    }
  }

  async #turnOrRest(id: string, keys: readonly InstanceKeyRow[]): Promise<void> {
    try {
      await this.#turn(keys);
      this.#standings.set(id, { look: this.#looks, failures: 0, notBefore: 0 });
    } catch (error) {
      this.#rest(id, keys, error);
    }
  }

  /** What is left when the turn is over waits for the next one. */
  async #turn(keys: readonly InstanceKeyRow[]): Promise<void> {
    const { db } = this.#context.store;
    const beganAt = performance.now();
    for (const key of keys) {
      const leftMs = beganAt + this.#turnMs - performance.now();
      if (leftMs < this.#turnMs / 2) return;
      // In this order: a request that ended before the first look has written its verdict by the second.
      if (this.#options.keysInFlight.has(key.id)) continue;
      await this.#unlessAskedFor(key, leftMs, async () => {
        if (!(await isPending(db, key.id))) return;
        if (await this.#takeBack(key, leftMs)) await deleteKey(db, key.id);
      });
    }
  }

  /** A supplied key may be sent again, and is there for good when that has gone well; a generated one never. */
  async #unlessAskedFor(
    { source, instance_id, fingerprint }: InstanceKeyRow,
    leftMs: number,
    work: () => Promise<void>,
  ): Promise<void> {
    if (source !== 'supplied') return work();
    return inTurn(this.#options.locks, `${instance_id} ${fingerprint}`, leftMs, work);
  }

  #rest(id: string, keys: readonly InstanceKeyRow[], error: unknown): void {
    const { log, now } = this.#context;
    const failures = (this.#standings.get(id)?.failures ?? 0) + 1;
    const restMs = Math.min(longestRestMs, firstRestMs * 2 ** (failures - 1));
    this.#standings.set(id, { look: this.#looks, failures, notBefore: now() + restMs });
    const fields = { err: error, instance: id, keys: keys.length };
    if (failures === 1) log.warn(fields, 'keys are still to be taken back');
  }

  /** False while the instance is on its way somewhere: a disk that is being made may still get this key. */
  async #takeBack(key: InstanceKeyRow, timeoutMs: number): Promise<boolean> {
    const { store, engine, log } = this.#context;
    const instance = await getInstance(store.db, key.instance_id);
    if (!instance) return true;
    if (
      instance.deleted_at !== null ||
      !['RUNNING', 'STOPPED', 'UNKNOWN'].includes(instance.status)
    )
      return false;
    if (instance.status === 'UNKNOWN') return instance.status_before === null;
    await withDeadline(engine.removeKey(instance.engine_ref, matchOf(key)), timeoutMs);
    const { id, fingerprint } = key;
    log.info({ key: id, fingerprint }, 'a key that nobody was told of was taken back');
    return true;
  }
}

/** A generated key is nobody else's. Of a supplied one there may be lines that were there before. */
const matchOf = ({ source, public_key, expires_at }: InstanceKeyRow): KeyMatch =>
  source === 'supplied'
    ? { kind: 'line', line: lineOf(public_key, expires_at) }
    : { kind: 'key', publicKey: public_key };

const lineOf = (publicKey: string, expiresAt: number | null): string =>
  keyLine({ publicKey, ...(expiresAt !== null && { expiresAt: new Date(expiresAt) }) });
