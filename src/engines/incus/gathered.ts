/**
 * A few at a time for each key. What arrives while they are at work is gathered, and done together as soon as one of
 * them is ready: many at once cost little more than one.
 */

interface Waiting<I, O> {
  readonly item: I;
  readonly resolve: (result: O) => void;
  readonly reject: (error: unknown) => void;
}

export class Gathered<I, O> {
  readonly #atOnce: number;
  readonly #together: (items: readonly I[]) => Promise<readonly O[]>;
  readonly #running = new Map<string, number>();
  readonly #waiting = new Map<string, Waiting<I, O>[]>();

  /** `together` gives the results in the order of the items; when it fails, all of them have failed. */
  constructor(atOnce: number, together: (items: readonly I[]) => Promise<readonly O[]>) {
    this.#atOnce = atOnce;
    this.#together = together;
  }

  run(key: string, item: I, alone: () => Promise<O>): Promise<O> {
    if ((this.#running.get(key) ?? 0) < this.#atOnce) return this.#count(key, alone);
    return new Promise((resolve, reject) => {
      const waiting = this.#waiting.get(key) ?? [];
      waiting.push({ item, resolve, reject });
      this.#waiting.set(key, waiting);
    });
  }

  async #count<T>(key: string, work: () => Promise<T>): Promise<T> {
    this.#running.set(key, (this.#running.get(key) ?? 0) + 1);
    try {
      return await work();
    } finally {
      const left = (this.#running.get(key) ?? 1) - 1;
      if (left === 0) this.#running.delete(key);
      else this.#running.set(key, left);
      this.#next(key);
    }
  }

  #next(key: string): void {
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return;
    this.#waiting.delete(key);
    this.#count(key, () => this.#together(waiting.map(({ item }) => item))).then(
      (results) => {
        for (const [index, { resolve }] of waiting.entries()) resolve(results[index] as O);
      },
      (error: unknown) => {
        for (const { reject } of waiting) reject(error);
      },
    );
  }
}
