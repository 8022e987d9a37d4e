/**
 * Some at a time for each key, in the order of arrival; different keys do not wait for each other. A call whose turn
 * does not come within its patience gives up, and its work is never run.
 */
export class SharedTurns {
  readonly #atOnce: number;
  readonly #running = new Map<string, number>();
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** Undefined when the turn did not come in time. */
  async run<T>(
    key: string,
    patienceMs: number,
    work: () => Promise<T>,
  ): Promise<{ readonly value: T } | undefined> {
    if (!(await this.#enter(key, patienceMs))) return undefined;
    try {
      return { value: await work() };
    } finally {
      this.#leave(key);
    }
  }

  async #enter(key: string, patienceMs: number): Promise<boolean> {
    const running = this.#running.get(key) ?? 0;
    if (running < this.#atOnce) {
      this.#running.set(key, running + 1);
      return true;
    }
    const queue = this.#waiting.get(key) ?? new Set();
    this.#waiting.set(key, queue);
    return new Promise((resolve) => {
      const begin = () => {
        clearTimeout(timer);
        resolve(true);
      };
      const timer = setTimeout(() => {
        queue.delete(begin);
        resolve(false);
      }, patienceMs);
      queue.add(begin);
    });
  }

  /** The turn goes over to who waits longest; the count of those running stays as it is. */
  #leave(key: string): void {
    const queue = this.#waiting.get(key);
    const [next] = queue ?? [];
    if (queue && next) {
      queue.delete(next);
      next();
      return;
    }
    this.#waiting.delete(key);
    const running = (this.#running.get(key) ?? 1) - 1;
    if (running === 0) this.#running.delete(key);
    else this.#running.set(key, running);
  }
}
