import type { EngineInventory, EngineRef } from '../engines/engine.ts';
import { listReadySnapshotRefs, moveSnapshot } from '../store/snapshots.ts';
import type { ServiceContext } from './context.ts';

/** Making one takes less. */
const makingMs = 2 * 3_600_000;

/**
 * A snapshot that the engine has no more is FAILED instead of READY, so that nobody counts on it, and READY again when
 * the engine has it again (a pool that was away, a setting that was wrong). Only what changed since the last look is
 * looked up, and what is new.
 */
export class SnapshotKeeper {
  readonly #context: ServiceContext;
  readonly #changed: (orgId: string) => void;
  /** What the engine had at the last look, and what it should have since. */
  #before: ReadonlySet<EngineRef> | undefined;

  /** `changed` is called with the organization whose list is not what it was. */
  constructor(context: ServiceContext, changed: (orgId: string) => void) {
    this.#context = context;
    this.#changed = changed;
  }

  /** To be called before the inventory is taken: what becomes READY meanwhile is not lost. */
  async begin(): Promise<void> {
    const { store, now } = this.#context;
    const since = this.#before === undefined ? 0 : now() - makingMs;
    const ready = new Set(await listReadySnapshotRefs(store.db, since));
    this.#before = ready.union(this.#before ?? ready);
  }

  async look({ snapshots: found, incomplete }: EngineInventory): Promise<void> {
    const before = this.#before ?? new Set();
    const snapshots = incomplete ? before.union(found) : found;
    for (const ref of before.difference(snapshots))
      if (await this.#move(ref, 'READY', 'FAILED'))
        this.#context.log.error({ snapshot: ref }, 'a snapshot vanished from the engine');
    for (const ref of snapshots.difference(before))
      if (await this.#move(ref, 'FAILED', 'READY'))
        this.#context.log.info({ snapshot: ref }, 'the engine has a snapshot again');
    this.#before = snapshots;
  }

  async #move(ref: EngineRef, from: 'READY' | 'FAILED', to: 'READY' | 'FAILED'): Promise<boolean> {
    const moved = await moveSnapshot(this.#context.store.db, ref, { from, to });
    if (moved) this.#changed(moved.org_id);
    return moved !== undefined;
  }
}
