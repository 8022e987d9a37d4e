/**
 * Lines of which nobody knows whether they are in a guest's file, although whoever asked for them was told of a
 * failure: Incus went away or hung while the guest was at work. They are found out about later, and taken back; unless
 * the same line was asked for again meanwhile, with success.
 */

import { KeyedLock } from '../../domain/keyed-lock.ts';

export class KeyDoubts {
  readonly #locks = new KeyedLock();
  /** By the line and its guest. */
  readonly #open = new Map<string, object>();

  /** Work after whose success the line is there for a reason. */
  async dispel<T>(id: string, work: () => Promise<T>): Promise<T> {
    const result = await (this.#open.has(id) ? this.#locks.run(id, work) : work());
    this.#open.delete(id);
    return result;
  }

  /** What comes back is called when it is known that the line was put there in vain, or that it was not. */
  open(id: string): (takeBack: (() => Promise<unknown>) | undefined) => Promise<void> {
    const doubt = {};
    this.#open.set(id, doubt);
    return (takeBack) =>
      this.#locks.run(id, async () => {
        if (this.#open.get(id) !== doubt) return;
        await takeBack?.();
        this.#open.delete(id);
      });
  }
}
