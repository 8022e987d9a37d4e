import { createHash } from 'node:crypto';
import { type Catalog, findTemplate } from '../domain/catalog.ts';
import { conflict, invalidRequest, notFound } from '../domain/errors.ts';
import { newOrderedId, parseReference } from '../domain/ids.ts';
import type { Db } from '../store/database.ts';
import { isSnapshotBeingRestored, moveInstance } from '../store/instances.ts';
import type { InstanceRow, SnapshotRow } from '../store/schema.ts';
import {
  findSnapshot,
  findSnapshotByName,
  insertSnapshot,
  listSnapshots,
  updateSnapshot,
} from '../store/snapshots.ts';
import { audit } from './audit.ts';
import {
  type Actor,
  requireInstance,
  requireState,
  type ServiceContext,
  shorten,
} from './context.ts';
import type { OnConfirm } from './kept-answers.ts';
import { enqueue, operationDeadlines } from './operations.ts';
import { requireQuota } from './quotas.ts';

/** Node writes a string up to 16 KiB, its headers included, without a copy on the heap. */
const shortLength = 12 * 1024;

export const snapshotNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/** The answer of the list, encoded: the bytes of a JSON array and their strong ETag (RFC 9110 section 8.8.3). */
export interface EncodedList {
  readonly body: Buffer;
  /** The same as a string of one byte a character, when it is short: sent in one piece with its headers. */
  readonly short?: string;
  /** Bytes of the body, in digits. */
  readonly length: string;
  readonly etag: string;
}

export interface SnapshotServiceOptions {
  readonly context: ServiceContext;
  readonly catalog: Catalog;
  readonly poke: () => void;
}

/** Snapshots: create, list, delete. Restoring one is creating an instance. */
export class SnapshotService {
  readonly #options: SnapshotServiceOptions;
  readonly #context: ServiceContext;
  readonly #encoded = new Map<string, EncodedList>();
  /** Counts the changes of an organization's list, so that one encoded before a change is not kept after it. */
  readonly #generations = new Map<string, number>();
  readonly #listeners = new Set<(orgId: string) => void>();

  constructor(options: SnapshotServiceOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  /** The list as bytes, when it is at hand: no await, no database. */
  encodedNow(orgId: string): EncodedList | undefined {
    return this.#encoded.get(orgId);
  }

  /** Every snapshot of the caller's organization, oldest first, as the bytes of the answer. */
  async list(actor: Actor): Promise<EncodedList> {
    const cached = this.#encoded.get(actor.orgId);
    if (cached) return cached;
    const generation = this.#generations.get(actor.orgId);
    const rows = await listSnapshots(this.#context.store.db, actor.orgId);
    const fresh = encode(rows);
    if (this.#generations.get(actor.orgId) === generation) this.#encoded.set(actor.orgId, fresh);
    return fresh;
  }

  /** To be called after each commit that changed the organization's snapshots. */
  changed(orgId: string): void {
    this.forget(orgId);
    for (const listener of this.#listeners) listener(orgId);
  }

  /** The next list is read from the database: another node may have changed it. */
  forget(orgId: string): void {
    this.#generations.set(orgId, (this.#generations.get(orgId) ?? 0) + 1);
    this.#encoded.delete(orgId);
  }

  /** Calls `listener` after each change that this process knows of. */
  onChange(listener: (orgId: string) => void): void {
    this.#listeners.add(listener);
  }

  /** Accepts a snapshot of a running instance: it is CREATING when this resolves. */
  async create(
    actor: Actor,
    instanceReference: string,
    name: string,
    onConfirm?: OnConfirm<string>,
  ): Promise<void> {
    requireName(name);
    const { store } = this.#context;
    await store.transaction(async (tx) => {
      const instance = await requireInstance(tx, actor, instanceReference);
      requireState('snapshot', instance);
      await this.#requireFreeName(tx, actor, name);
      await requireQuota(tx, actor.orgId, { snapshots: 1 });
      await this.#accept(tx, actor, instance, name);
      await onConfirm?.(tx, name);
    });
    this.changed(actor.orgId);
    this.#options.poke();
  }

  async #requireFreeName(tx: Db, actor: Actor, name: string): Promise<void> {
    if (await findSnapshotByName(tx, actor.orgId, name)) {
      throw conflict(
        `A snapshot named "${name}" exists already. Choose another name, or delete that one first.`,
      );
    }
    if (findTemplate(this.#options.catalog, name)) {
      throw conflict(
        `"${name}" is the name of a template, so a snapshot of that name could never be restored. Choose another name.`,
      );
    }
  }

  async #accept(tx: Db, actor: Actor, instance: InstanceRow, name: string): Promise<void> {
    const { now, engine } = this.#context;
    const id = newOrderedId();
    await insertSnapshot(tx, {
      id,
      org_id: actor.orgId,
      instance_id: instance.id,
      engine_ref: id,
      name,
      status: 'CREATING',
      minimum_disk_size_gb: instance.disk_size_gb,
      created_at: now(),
      deleted_at: null,
    });
    await this.#enqueue(tx, actor, { kind: 'snapshot.create', subjectId: id, lockId: instance.id });
    if (!engine.capabilities.snapshotPauses) return;
    await moveInstance(tx, instance.id, 'RUNNING', { status: 'SNAPPING', status_since: now() });
  }

  /** Accepts the deletion: from then on the snapshot does not exist for callers. */
  async delete(actor: Actor, id: string): Promise<void> {
    const { store, now } = this.#context;
    await store.freeingTransaction(async (tx) => {
      const snapshot = await this.#require(tx, actor, id);
      if (snapshot.status === 'CREATING') {
        throw conflict(
          `The snapshot "${snapshot.name}" is still CREATING. Wait until it is READY or FAILED.`,
        );
      }
      if (await isSnapshotBeingRestored(tx, actor.orgId, snapshot.id)) {
        throw conflict(
          `The snapshot "${snapshot.name}" is being restored. Wait until the new instance is RUNNING.`,
        );
      }
      await this.#enqueue(tx, actor, {
        kind: 'snapshot.delete',
        subjectId: snapshot.id,
        lockId: snapshot.id,
      });
      await updateSnapshot(tx, snapshot.id, { deleted_at: now() });
    });
    this.changed(actor.orgId);
    this.#options.poke();
  }

  async #require(tx: Db, actor: Actor, id: string): Promise<SnapshotRow> {
    const reference = parseReference(id);
    const uuid = reference && 'uuid' in reference ? reference.uuid : undefined;
    const snapshot = uuid && (await findSnapshot(tx, actor.orgId, uuid));
    if (!snapshot) throw notFound('Snapshot', shorten(id));
    return snapshot;
  }

  async #enqueue(
    tx: Db,
    actor: Actor,
    operation: { kind: 'snapshot.create' | 'snapshot.delete'; subjectId: string; lockId: string },
  ): Promise<void> {
    const now = this.#context.now();
    const whole = { ...operation, orgId: actor.orgId, tokenId: actor.tokenId, now };
    await enqueue(tx, whole, operationDeadlines[operation.kind]);
    await audit(tx, actor, now, {
      action: operation.kind,
      subject: operation.subjectId,
      outcome: 'accepted',
    });
  }
}

function requireName(name: string): void {
  if (snapshotNamePattern.test(name)) return;
  throw invalidRequest(
    'The field "name" must be 1 to 63 letters, digits, ".", "_" or "-", and start with a letter or digit.',
  );
}

/** Field by field, so that a new column never shows. */
function encode(rows: readonly SnapshotRow[]): EncodedList {
  const text = snapshotsAsJson(rows);
  const body = Buffer.from(text);
  const oneByteEach = body.length === text.length;
  return {
    body,
    ...(oneByteEach && text.length <= shortLength && { short: text }),
    length: String(body.length),
    etag: strongEtag(body),
  };
}

export function snapshotsAsJson(rows: readonly SnapshotRow[]): string {
  const views = rows.map((row) => ({
    createdAt: Math.floor(row.created_at / 1000),
    id: row.id,
    minimumDiskSizeGb: row.minimum_disk_size_gb,
    name: row.name,
    status: row.status,
  }));
  return JSON.stringify(views);
}

export const strongEtag = (content: Buffer | string): string =>
  `"${createHash('sha256').update(content).digest('base64url').slice(0, 22)}"`;
