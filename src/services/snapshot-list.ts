import { findInstance } from '../store/instances.ts';
import type { SnapshotRow } from '../store/schema.ts';
import { countSnapshots, pageSnapshots, type SnapshotFilter } from '../store/snapshots.ts';
import type { Actor, ServiceContext } from './context.ts';
import { type SnapshotQuery, writeCursor } from './snapshot-query.ts';
import { SnapshotWatch } from './snapshot-watch.ts';
import { type SnapshotService, snapshotsAsJson, strongEtag } from './snapshots.ts';

/** An answer of the list. */
export interface SnapshotPage {
  readonly body: Buffer;
  readonly etag: string;
  /** How many the filters let through, on all pages together; absent for the plain list. */
  readonly total?: number;
  /** The cursor of the next page, if there is one. */
  readonly next?: string;
}

export interface ChangeWish {
  readonly waitSeconds: number;
  /** Does the caller hold the list with this ETag? Absent: the caller waits for the next change. */
  readonly holds?: (etag: string) => boolean;
  /** Aborted when the caller hung up. */
  readonly hungUp: AbortSignal;
  /** Throws when the caller may not see the list any more. */
  readonly check: () => Promise<void>;
}

/** The list of snapshots with options: filters, pages, and waiting for a change. */
export class SnapshotListService {
  readonly #context: ServiceContext;
  readonly #snapshots: SnapshotService;
  readonly watch: SnapshotWatch;

  constructor(context: ServiceContext, snapshots: SnapshotService) {
    this.#context = context;
    this.#snapshots = snapshots;
    this.watch = new SnapshotWatch(context, snapshots);
  }

  /** Without a query the whole list. */
  async find(actor: Actor, query: SnapshotQuery | undefined): Promise<SnapshotPage> {
    if (!query) return this.#snapshots.list(actor);
    const { limit, after } = query;
    const filter = await this.#toFilter(actor, query);
    const { db } = this.#context.store;
    const rows = await pageSnapshots(db, actor.orgId, filter, {
      after,
      limit: limit === undefined ? undefined : limit + 1,
    });
    const isWhole = rows.length <= (limit ?? rows.length);
    const page = isWhole ? rows : rows.slice(0, limit);
    const total = isWhole && !after ? rows.length : await countSnapshots(db, actor.orgId, filter);
    return encodePage(page, total, isWhole);
  }

  /** As soon as the list is another one; when the time is over, as it is then. Undefined: nobody can wait now. */
  async findChanged(
    actor: Actor,
    query: SnapshotQuery | undefined,
    wish: ChangeWish,
  ): Promise<SnapshotPage | undefined> {
    if (!this.watch.hasRoom(actor.orgId)) return undefined;
    let first: string | undefined;
    const look = async () => {
      const page = await this.find(actor, query);
      first ??= page.etag;
      const isKnown = wish.holds ? wish.holds(page.etag) : page.etag === first;
      return isKnown ? undefined : page;
    };
    const patience = new AbortController();
    const end = () => patience.abort();
    const timer = setTimeout(end, wish.waitSeconds * 1000);
    wish.hungUp.addEventListener('abort', end, { once: true });
    const { signal } = patience;
    const wait = { look, check: wish.check, signal };
    const changed = await this.watch.follow(actor.orgId, wait).finally(() => clearTimeout(timer));
    await wish.check();
    return changed ?? this.find(actor, query);
  }

  /** A number stands for the instance that has it now; a UUID also for one that was deleted. */
  async #toFilter(actor: Actor, query: SnapshotQuery): Promise<SnapshotFilter> {
    const { status, name, instance, fitsGb } = query;
    const instanceId = instance && (await this.#instanceId(actor, instance));
    return {
      ...(status && { status }),
      ...(name !== undefined && { name }),
      ...(instanceId !== undefined && { instanceId }),
      ...(fitsGb !== undefined && { fitsGb }),
    };
  }

  async #instanceId(
    actor: Actor,
    reference: NonNullable<SnapshotQuery['instance']>,
  ): Promise<string> {
    if ('uuid' in reference) return reference.uuid;
    const found = await findInstance(this.#context.store.db, actor.orgId, reference);
    // No snapshot is of an instance without an id.
    return found?.id ?? '';
  }
}

/** The ETag covers what stands in headers too: a page may stay while the pages behind it change. */
function encodePage(rows: readonly SnapshotRow[], total: number, isLast: boolean): SnapshotPage {
  const text = snapshotsAsJson(rows);
  const last = isLast ? undefined : rows.at(-1);
  const next = last && {
    next: writeCursor({ createdAtSeconds: Math.floor(last.created_at / 1000), id: last.id }),
  };
  const etag = strongEtag(`${text}\n${total}\n${next?.next ?? ''}`);
  return { body: Buffer.from(text), etag, total, ...next };
}
