/**
 * Where a key is authorized, now. The files are what counts: a key that was added by hand, or came with a restored
 * snapshot, is in no record. A file that cannot be read (the instance is on its way somewhere, its engine is away, its
 * guest put something in the way) is told from the record, and says so: "not found" is never said of a file that
 * nobody looked at.
 */
import type { AuthorizedLine } from '../domain/authorized-keys.ts';
import { AppError, notFound } from '../domain/errors.ts';
import { parseReference } from '../domain/ids.ts';
import { accessOf, type LineAccess, mostAccess } from '../domain/key-line-access.ts';
import type { InstanceStatus } from '../domain/lifecycle.ts';
import { listKeysByFingerprint } from '../store/instance-keys.ts';
import { listInstances } from '../store/instances.ts';
import { findBookKey } from '../store/keys.ts';
import type { InstanceKeyRow, InstanceRow } from '../store/schema.ts';
import { type Actor, type ServiceContext, shorten } from './context.ts';
import { askEngine } from './engine-errors.ts';
import type { KeyReader } from './key-reader.ts';

/** An answer comes within 25 s, however many instances there are and however slow they are. */
const wholeDeadlineMs = 15_000;
const reading = { patienceMs: 3_000, deadlineMs: 5_000 };
/** As many as the reader takes from one organization: more would only wait. */
const filesAtOnce = 4;

/** While its disk is being made an empty file says nothing. */
const withoutDisk: readonly InstanceStatus[] = ['PROVISIONING', 'RESTORING'];

export interface KeyPlace {
  readonly instance: Pick<InstanceRow, 'id' | 'identifier' | 'name' | 'status'>;
  /**
   * In the file and recorded, in the file only, in the record only (`missing` and, where the file could not be read,
   * `recorded`), or not recorded where the file could not be read.
   */
  readonly presence: 'present' | 'unknown' | 'missing' | 'recorded' | 'unchecked';
  /** What the lines of the file let the key do; absent when none was read. */
  readonly access?: LineAccess;
  readonly source?: InstanceKeyRow['source'] | 'file';
  /** Why the file was not read. */
  readonly reason?: string;
}

/** The lines of the key in one file, or why they are not known. */
type Look = { readonly lines: readonly AuthorizedLine[] } | { readonly reason: string };

export class KeyPlaceService {
  readonly #context: ServiceContext;
  readonly #reader: KeyReader;

  constructor(context: ServiceContext, reader: KeyReader) {
    this.#context = context;
    this.#reader = reader;
  }

  /**
   * By instance number. `reference` is an id of the address book or a fingerprint. `withMissing`: also where it is
   * recorded although the file has no such line.
   */
  async find(actor: Actor, reference: string, withMissing: boolean): Promise<KeyPlace[]> {
    const { db } = this.#context.store;
    const fingerprint = await this.#fingerprintOf(actor, reference);
    const instances = await listInstances(db, actor.orgId);
    const looks = await this.#lookAtAll(instances, fingerprint);
    const rows = await listKeysByFingerprint(db, actor.orgId, fingerprint);
    const known = new Map(rows.map((row) => [row.instance_id, row]));
    return instances.flatMap((instance, index) => {
      const look = looks[index] ?? { reason: notInTime };
      const place = this.#describe(instance, look, known.get(instance.id));
      return place && (withMissing || place.presence !== 'missing') ? [place] : [];
    });
  }

  async #fingerprintOf(actor: Actor, reference: string): Promise<string> {
    const full = reference.startsWith('SHA256:') ? reference : `SHA256:${reference}`;
    if (/^SHA256:[A-Za-z0-9+/]{43}$/.test(full)) return full;
    const parsed = parseReference(reference);
    const uuid = parsed && 'uuid' in parsed ? parsed.uuid : undefined;
    const key = uuid && (await findBookKey(this.#context.store.db, actor.orgId, uuid));
    if (!key) throw notFound('Key', shorten(reference));
    return key.fingerprint;
  }

  /** Some at a time; what the deadline leaves over is not looked at. */
  async #lookAtAll(instances: readonly InstanceRow[], fingerprint: string): Promise<Look[]> {
    const looks: Look[] = [];
    const deadline = performance.now() + wholeDeadlineMs;
    const queue = instances.entries();
    const lane = async () => {
      for (const [index, instance] of queue) {
        const inTime = performance.now() < deadline;
        looks[index] = inTime ? await this.#look(instance, fingerprint) : { reason: notInTime };
      }
    };
    await Promise.all(Array.from({ length: filesAtOnce }, lane));
    return looks;
  }

  async #look(instance: InstanceRow, fingerprint: string): Promise<Look> {
    const isIn = { reason: `The instance is ${instance.status}.` };
    if (withoutDisk.includes(instance.status)) return isIn;
    try {
      if (instance.status === 'UNKNOWN') return (await this.#isHeld(instance)) ? isIn : noLines;
      const isWanted = (line: AuthorizedLine) => line.fingerprint === fingerprint;
      return { lines: await this.#reader.read(instance, reading, isWanted) };
    } catch (error) {
      if (error instanceof AppError) return { reason: error.message };
      throw error;
    }
  }

  /** One that could never be made has no disk, and nobody logs in to it. */
  async #isHeld({ engine_ref }: InstanceRow): Promise<boolean> {
    const { engine } = this.#context;
    return (await askEngine(engine.inspect(engine_ref), reading.deadlineMs)) !== undefined;
  }

  /** Undefined when the key has nothing to do with the instance. */
  #describe(
    instance: InstanceRow,
    look: Look,
    row: InstanceKeyRow | undefined,
  ): KeyPlace | undefined {
    const source = row && { source: row.source };
    if ('reason' in look)
      return { instance, presence: row ? 'recorded' : 'unchecked', ...source, reason: look.reason };
    const access = mostAccess(look.lines.map((line) => accessOf(line, this.#context.now())));
    if (access === undefined)
      return row?.state === 'active' ? { instance, presence: 'missing', ...source } : undefined;
    if (!row || access === 'signer')
      return { instance, presence: 'unknown', access, source: 'file' };
    return { instance, presence: 'present', access, source: row.source };
  }
}

const noLines: Look = { lines: [] };
const notInTime = 'Reading all files took too long, and this one was not reached. Try again.';
