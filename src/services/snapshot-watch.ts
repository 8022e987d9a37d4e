/**
 * Waiting for a change of an organization's snapshots.
 *
 * What this process changes it hears of at once (`SnapshotService.changed`). What other nodes change it sees in the
 * database: once a second, one small query for each organization in which somebody waits, however many do. A waiter
 * holds a timer and a promise, and no connection to the database.
 */
import { snapshotsDigest } from '../store/snapshots.ts';
import type { ServiceContext } from './context.ts';
import type { SnapshotService } from './snapshots.ts';

const mostWaiters = 100;
const usualPollMs = 1000;

/** One organization in which somebody waits. */
interface Watched {
  /** Counts the changes. */
  version: number;
  waiters: number;
  /** Rings at a change, at each look into the database, and at the end. */
  bell: PromiseWithResolvers<void>;
  /** Settled once the first look is there that later ones are compared with. */
  ready: Promise<string>;
  timer: NodeJS.Timeout;
  /** A look that takes longer than the pause between two is not doubled. */
  looking: boolean;
}

export interface Wait<T> {
  /** Asked at first and after each change; undefined: go on waiting. */
  readonly look: () => Promise<T | undefined>;
  /** Asked now and then; throws when the caller may not wait any longer. */
  readonly check: () => Promise<void>;
  /** Ends the wait. */
  readonly signal: AbortSignal;
}

export class SnapshotWatch {
  readonly #context: ServiceContext;
  readonly #snapshots: SnapshotService;
  readonly #pollMs: number;
  readonly #watched = new Map<string, Watched>();
  #stopped = false;

  constructor(context: ServiceContext, snapshots: SnapshotService, pollMs = usualPollMs) {
    this.#context = context;
    this.#snapshots = snapshots;
    this.#pollMs = pollMs;
    snapshots.onChange((orgId) => {
      const watched = this.#watched.get(orgId);
      if (!watched) return;
      watched.version += 1;
      ring(watched);
    });
  }

  /** How many wait in an organization. */
  waiting(orgId: string): number {
    return this.#watched.get(orgId)?.waiters ?? 0;
  }

  /** False when nobody can wait here: too many do already, or the service ends. */
  hasRoom(orgId: string): boolean {
    return !this.#stopped && this.waiting(orgId) < mostWaiters;
  }

  /** What `look` found, or undefined when the wait ended without. */
  async follow<T>(orgId: string, wait: Wait<T>): Promise<T | undefined> {
    const watched = this.#enter(orgId);
    const ended = new Promise<void>((resolve) => {
      wait.signal.addEventListener('abort', () => resolve(), { once: true });
    });
    try {
      await watched.ready;
      let seen = -1;
      while (!wait.signal.aborted && !this.#stopped) {
        // Before the look: a change during it has rung this bell.
        const { bell, version } = watched;
        const found = version === seen ? await wait.check() : await wait.look();
        if (found !== undefined) return found;
        seen = version;
        await Promise.race([bell.promise, ended]);
      }
      return undefined;
    } finally {
      this.#leave(orgId, watched);
    }
  }

  /** Ends every wait, now and from now on. */
  stop(): void {
    this.#stopped = true;
    for (const watched of this.#watched.values()) ring(watched);
  }

  #enter(orgId: string): Watched {
    const known = this.#watched.get(orgId);
    const watched = known ?? this.#begin(orgId);
    watched.waiters += 1;
    return watched;
  }

  #begin(orgId: string): Watched {
    const ready = this.#firstLook(orgId);
    // Whoever waits for it hears of its failure.
    ready.catch(() => undefined);
    const watched: Watched = {
      version: 0,
      waiters: 0,
      bell: Promise.withResolvers(),
      ready,
      looking: false,
      timer: setInterval(() => this.#poll(orgId, watched), this.#pollMs).unref(),
    };
    this.#watched.set(orgId, watched);
    return watched;
  }

  /** In this order: what another node changed before the digest is not to be hidden by an older list. */
  async #firstLook(orgId: string): Promise<string> {
    const digest = await snapshotsDigest(this.#context.store.db, orgId);
    this.#snapshots.forget(orgId);
    return digest;
  }

  async #poll(orgId: string, watched: Watched): Promise<void> {
    if (watched.looking) return;
    watched.looking = true;
    try {
      const before = await watched.ready;
      const digest = await snapshotsDigest(this.#context.store.db, orgId);
      watched.ready = Promise.resolve(digest);
      if (digest !== before) this.#snapshots.changed(orgId);
    } catch (error) {
      this.#context.log.warn({ err: error }, 'the snapshots could not be looked at for a change');
    } finally {
      watched.looking = false;
    }
    ring(watched);
  }

  #leave(orgId: string, watched: Watched): void {
    watched.waiters -= 1;
    if (watched.waiters > 0) return;
    clearInterval(watched.timer);
    this.#watched.delete(orgId);
  }
}

function ring(watched: Watched): void {
  const { bell } = watched;
  watched.bell = Promise.withResolvers();
  bell.resolve();
}
