/** Looks at the statuses of all instances all the time, as somebody with a dashboard does. */

import assert from 'node:assert/strict';
import type { Api } from '../support/client.ts';
import { sleep } from '../support/waiting.ts';

const everyMs = 200;

export class Watcher {
  /** UUID -> every status that it had. */
  readonly #seen = new Map<string, Set<string>>();
  readonly #api: Api;
  #ended = false;
  #slowestMs = 0;
  readonly #work: Promise<void>;

  constructor(api: Api) {
    this.#api = api;
    this.#work = this.#watch();
    this.#work.catch(() => undefined);
  }

  async #watch(): Promise<void> {
    while (!this.#ended) {
      const startedAt = performance.now();
      for (const { uuid, status } of (await this.#api.instances()).values()) {
        const seen = this.#seen.get(uuid) ?? new Set();
        this.#seen.set(uuid, seen.add(status));
      }
      this.#slowestMs = Math.max(this.#slowestMs, performance.now() - startedAt);
      await sleep(everyMs);
    }
  }

  /** Ends it; these were RUNNING all the time, and the list never kept anybody waiting for a host. */
  async endsWithSteady(machines: readonly { readonly uuid: string }[]): Promise<void> {
    this.#ended = true;
    await this.#work;
    for (const { uuid } of machines)
      assert.deepEqual([...(this.#seen.get(uuid) ?? [])], ['RUNNING'], `${uuid} all the time`);
    assert.ok(this.#slowestMs < 5000, `a list took ${this.#slowestMs} ms`);
  }
}
