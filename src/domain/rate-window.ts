/** How many requests a caller may make within how long. */
export interface RateLimit {
  readonly requests: number;
  readonly windowSeconds: number;
}

interface Window {
  startedAt: number;
  count: number;
  refused: boolean;
}

/** Where a caller stands; `resetSeconds` are whole ones, at least 1, after which everything is allowed again. */
export interface Standing {
  readonly limit: number;
  readonly remaining: number;
  readonly resetSeconds: number;
}

const fewestSwept = 2;

/**
 * One counter for each caller, in windows that begin with the caller's first request.
 *
 * Everything is one look-up in a map. All windows are equally long, and a window that begins goes to the end of the
 * map, so the map is in the order in which they end: whoever is new sweeps what has ended off the front. With
 * `maxCallers` windows open at once the oldest gives way, which forgives somebody a few requests; refusing the newcomer
 * instead would let a flood of made-up callers lock out the real ones.
 */
export class RateWindows {
  readonly limit: RateLimit;
  readonly #windowMs: number;
  readonly #maxCallers: number;
  readonly #windows = new Map<string, Window>();

  constructor(limit: RateLimit, maxCallers = 50_000) {
    this.limit = limit;
    this.#windowMs = limit.windowSeconds * 1000;
    this.#maxCallers = maxCallers;
  }

  /** How many callers are remembered. */
  get size(): number {
    return this.#windows.size;
  }

  /** Counts a request; false when it is one too many, and then it is not counted. */
  take(caller: string, nowMs: number): boolean {
    const window = this.#open(caller, nowMs) ?? this.#begin(caller, nowMs);
    if (window.count >= this.limit.requests) return false;
    window.count += 1;
    return true;
  }

  /** True when `take` would be. */
  hasRoom(caller: string, nowMs: number): boolean {
    const window = this.#open(caller, nowMs);
    return window === undefined || window.count < this.limit.requests;
  }

  /** True at the first refusal of a window, so that a flood is one line in the log. */
  noteRefusal(caller: string, nowMs: number): boolean {
    const window = this.#open(caller, nowMs);
    if (window === undefined || window.refused) return false;
    window.refused = true;
    return true;
  }

  standing(caller: string, nowMs: number): Standing {
    const { requests, windowSeconds } = this.limit;
    const window = this.#open(caller, nowMs);
    if (!window) return { limit: requests, remaining: requests, resetSeconds: windowSeconds };
    const leftMs = window.startedAt + this.#windowMs - nowMs;
    const resetSeconds = Math.max(1, Math.ceil(leftMs / 1000));
    return { limit: requests, remaining: requests - window.count, resetSeconds };
  }

  /** The caller's window, while it lasts. A clock that was set back ends it too: nobody waits for the lost hour again. */
  #open(caller: string, nowMs: number): Window | undefined {
    const window = this.#windows.get(caller);
    return window !== undefined && this.#lasts(window, nowMs) ? window : undefined;
  }

  #lasts({ startedAt }: Window, nowMs: number): boolean {
    return nowMs >= startedAt && nowMs < startedAt + this.#windowMs;
  }

  #begin(caller: string, nowMs: number): Window {
    this.#windows.delete(caller);
    this.#sweep(nowMs);
    const window = { startedAt: nowMs, count: 0, refused: false };
    this.#windows.set(caller, window);
    return window;
  }

  /** A few at a time: nobody pays for a flood that is over. */
  #sweep(nowMs: number): void {
    let left = fewestSwept;
    for (const [caller, window] of this.#windows) {
      const isFull = this.#windows.size >= this.#maxCallers;
      if (!isFull && (left === 0 || this.#lasts(window, nowMs))) return;
      this.#windows.delete(caller);
      left = Math.max(0, left - 1);
    }
  }
}
