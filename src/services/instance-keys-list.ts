import type { AuthorizedLine } from '../domain/authorized-keys.ts';
import { conflict, notFound } from '../domain/errors.ts';
import { accessOf, type LineAccess } from '../domain/key-line-access.ts';
import type { KeyedLock } from '../domain/keyed-lock.ts';
import { deleteKeyByFingerprint, listKeys } from '../store/instance-keys.ts';
import type { InstanceKeyRow, InstanceRow } from '../store/schema.ts';
import { audit } from './audit.ts';
import {
  type Actor,
  requireInstance,
  requireState,
  type ServiceContext,
  shorten,
} from './context.ts';
import { askEngine, explainEngineError } from './engine-errors.ts';
import { inTurn } from './in-turn.ts';
import type { KeyReader } from './key-reader.ts';

const turnPatienceMs = 8_000;
const engineDeadlineMs = 7_000;
const reading = { patienceMs: 6_000, deadlineMs: engineDeadlineMs };

/** More than anyone keeps by hand; an answer with more would be work for everybody else to wait for. */
const listedLinesMaximum = 5_000;

/** A key line of the real file, with what we know of it. */
export interface KeyView {
  readonly fingerprint: string;
  readonly keyType: string;
  readonly comment: string;
  readonly publicKey: string;
  readonly source: InstanceKeyRow['source'] | 'file';
  readonly addedAt?: number;
}

/** The same with how the file and the records agree; docs/decisions/0009-key-presence.md. */
export interface KeyPresenceView extends KeyView {
  readonly presence: 'present' | 'missing' | 'unknown';
  /** What the line lets the key do; absent when there is no line. */
  readonly access?: LineAccess;
  readonly expiresAt?: number;
}

/** The keys that an instance really has: read them, and take one off. */
export class InstanceKeyListService {
  readonly #context: ServiceContext;
  readonly #locks: KeyedLock;
  readonly #reader: KeyReader;

  constructor(context: ServiceContext, locks: KeyedLock, reader: KeyReader) {
    this.#context = context;
    this.#locks = locks;
    this.#reader = reader;
  }

  /** Every line of the file that lets a key in, hand-written ones included. */
  async list(actor: Actor, reference: string): Promise<KeyView[]> {
    const instance = await requireInstance(this.#context.store.db, actor, reference);
    const known = byFingerprint(await this.#recorded(actor, instance));
    const lines = (await this.#linesToList(instance)).filter((line) => !line.rules.forSigner);
    return lines.map((line) => describeKey(line, known.get(line.fingerprint)));
  }

  /**
   * Every line of the file that carries a key, and behind them the recorded keys that have none. Records are read
   * on both sides of the file: a key that is added or removed meanwhile is not called missing.
   */
  async listWithPresence(actor: Actor, reference: string): Promise<KeyPresenceView[]> {
    const instance = await requireInstance(this.#context.store.db, actor, reference);
    const before = byFingerprint(await this.#recorded(actor, instance));
    const lines = await this.#linesToList(instance);
    const rows = await this.#recorded(actor, instance);
    const known = byFingerprint(rows);
    const there = new Set<string>();
    const found = lines.map((line) => {
      // Berth writes no line for a signer: what it recorded is the key, and not what the key has signed.
      if (line.rules.forSigner) return describePresence(line, undefined, this.#context.now());
      there.add(line.fingerprint);
      return describePresence(line, known.get(line.fingerprint), this.#context.now());
    });
    const isMissing = ({ state, fingerprint }: InstanceKeyRow) =>
      state === 'active' && before.has(fingerprint) && !there.has(fingerprint);
    return [...found, ...rows.filter(isMissing).map(describeMissing)];
  }

  #recorded(actor: Actor, instance: InstanceRow): Promise<InstanceKeyRow[]> {
    return listKeys(this.#context.store.db, actor.orgId, instance.id);
  }

  /** Takes one key off an instance: every line that carries it, and nothing else. */
  async remove(actor: Actor, reference: string, fingerprint: string): Promise<void> {
    const { store } = this.#context;
    const instance = await requireInstance(store.db, actor, reference);
    requireState('remove_key', instance);
    const full = fingerprint.startsWith('SHA256:') ? fingerprint : `SHA256:${fingerprint}`;
    const remove = () => this.#removeEverywhere(actor, instance, full);
    await inTurn(this.#locks, `${instance.id} ${full}`, turnPatienceMs, remove).catch(
      (error: unknown) => {
        throw explainEngineError(error);
      },
    );
  }

  /** From the file first: a key that is still recorded but does not log in does no harm. */
  async #removeEverywhere(actor: Actor, instance: InstanceRow, fingerprint: string): Promise<void> {
    const { store, now } = this.#context;
    const isWanted = (line: AuthorizedLine) =>
      line.fingerprint === fingerprint && !line.rules.forSigner;
    const [line] = await this.#reader.read(instance, reading, isWanted);
    if (line) await this.#removeKey(instance, line.publicKey);
    const recorded = await store.transaction(async (tx) => {
      const subject = `${instance.id} ${shorten(fingerprint)}`;
      const deleted = await deleteKeyByFingerprint(tx, actor.orgId, instance.id, fingerprint);
      const entry = { action: 'key.remove', subject, outcome: 'done' };
      if (deleted || line) await audit(tx, actor, now(), entry);
      return deleted;
    });
    if (!recorded && !line) throw notFound('Key', shorten(fingerprint));
  }

  async #removeKey(instance: InstanceRow, publicKey: string): Promise<void> {
    const work = this.#context.engine.removeKey(instance.engine_ref, { kind: 'key', publicKey });
    const removed = await askEngine(work, engineDeadlineMs);
    if (removed === 0)
      throw conflict('The line changed at the same moment, so it was left alone. Try again.');
  }

  #linesToList(instance: InstanceRow): Promise<AuthorizedLine[]> {
    let count = 0;
    return this.#reader.read(instance, reading, () => {
      count += 1;
      if (count <= listedLinesMaximum) return true;
      throw conflict(
        `The authorized_keys file holds more than ${listedLinesMaximum} keys, which is too many to list. Remove lines from it inside the instance, or remove keys by their fingerprints.`,
      );
    });
  }
}

const byFingerprint = (rows: readonly InstanceKeyRow[]): Map<string, InstanceKeyRow> =>
  new Map(rows.map((row) => [row.fingerprint, row]));

/** What stands in the file, and what was recorded when Berth put it there. */
function describeKey(line: AuthorizedLine, row: InstanceKeyRow | undefined): KeyView {
  const { fingerprint, keyType, comment } = line;
  if (!row) return { fingerprint, keyType, comment, publicKey: line.publicKey, source: 'file' };
  const { public_key: publicKey, source, added_at: addedAt } = row;
  return { fingerprint, keyType, comment, publicKey, source, addedAt };
}

function describePresence(
  line: AuthorizedLine,
  row: InstanceKeyRow | undefined,
  nowMs: number,
): KeyPresenceView {
  return {
    ...describeKey(line, row),
    presence: row ? 'present' : 'unknown',
    access: accessOf(line, nowMs),
    ...(line.expiresAt && { expiresAt: line.expiresAt.getTime() }),
  };
}

function describeMissing(row: InstanceKeyRow): KeyPresenceView {
  return {
    fingerprint: row.fingerprint,
    keyType: row.key_type,
    comment: row.comment,
    publicKey: row.public_key,
    source: row.source,
    addedAt: row.added_at,
    presence: 'missing',
  };
}
