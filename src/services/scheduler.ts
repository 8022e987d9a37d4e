import type { Log } from './context.ts';
import type { KeySweeper } from './key-sweeper.ts';
import type { Monitor } from './monitor.ts';
import type { Worker } from './worker.ts';

const longestRestMs = 1000;
const lookEveryMs = 2000;

/** The service's own clockwork: wakes the worker when there is work, and the monitor every two seconds. */
export class Scheduler {
  readonly #worker: Worker;
  readonly #monitor: Monitor;
  readonly #keySweeper: KeySweeper;
  readonly #log: Log;
  readonly #chores: readonly (() => Promise<void>)[];
  #workTimer: NodeJS.Timeout | undefined;
  #lookTimer: NodeJS.Timeout | undefined;
  #busy = false;
  #again = false;
  #stopped = false;

  /** `chores`: run after each look; none of them rejects. */
  constructor(
    worker: Worker,
    monitor: Monitor,
    keySweeper: KeySweeper,
    log: Log,
    chores: readonly (() => Promise<void>)[] = [],
  ) {
    this.#worker = worker;
    this.#monitor = monitor;
    this.#keySweeper = keySweeper;
    this.#log = log;
    this.#chores = chores;
  }

  start(): void {
    this.poke();
    this.#lookLater();
  }

  /** There is something to do now. */
  poke(): void {
    if (this.#stopped) return;
    if (this.#busy) this.#again = true;
    else setImmediate(() => void this.#work());
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#workTimer);
    clearTimeout(this.#lookTimer);
    await this.#worker.stop();
  }

  async #work(): Promise<void> {
    if (this.#busy || this.#stopped) return;
    this.#busy = true;
    this.#again = false;
    let restMs = longestRestMs;
    try {
      const dueAt = await this.#worker.begin();
      if (dueAt !== undefined) restMs = Math.min(longestRestMs, Math.max(10, dueAt - Date.now()));
    } catch (error) {
      this.#log.error({ err: error }, 'the worker could not look for work');
    }
    this.#busy = false;
    if (this.#again) return this.poke();
    clearTimeout(this.#workTimer);
    if (!this.#stopped) this.#workTimer = setTimeout(() => void this.#work(), restMs);
  }

  #lookLater(): void {
    if (this.#stopped) return;
    this.#lookTimer = setTimeout(
      () => void this.#look().finally(() => this.#lookLater()),
      lookEveryMs,
    );
  }

  async #look(): Promise<void> {
    // Guests have a part in this one: the look does not wait for it.
    void this.#keySweeper.look();
    await this.#monitor.look();
    for (const chore of this.#chores) if (!this.#stopped) await chore();
  }
}
