/**
 * Tells a server that takes its time from one that is gone. A server answers `/1.0` at once whatever else it does, even
 * when its cluster has no quorum; two silences in a row, and nobody needs to wait for it any longer. One that starts
 * says for seconds that it is not ready, and is as good as gone until it is.
 */

import type { Endpoint } from './endpoint.ts';
import { exchange } from './exchange.ts';
import { isIncusError } from './incus-error.ts';

const attemptMs = 1_500;
const firstMs = 500;
const everyMs = 2_000;

export async function answers(endpoint: Endpoint): Promise<boolean> {
  // A connection that was left open may be one that the server does not know any more.
  return (await isAnswered(endpoint, false)) || isAnswered(endpoint, true);
}

function isAnswered(endpoint: Endpoint, fresh: boolean): Promise<boolean> {
  const request = { method: 'GET', path: '/1.0', timeoutMs: attemptMs, fresh } as const;
  return exchange(endpoint, request).then(
    () => true,
    (error: unknown) => {
      if (isIncusError(error, 'unknown_outcome')) return fresh;
      // Whatever it objects to (a certificate that it does not know, say), it is there; unless it is just starting.
      return !isIncusError(error, 'unreachable', 'timeout', 'host_down');
    },
  );
}

export class Watch {
  readonly #onSilence: (endpoint: Endpoint) => void;
  /** All that wait for the same server ask together. */
  readonly #asking = new Map<Endpoint, Promise<boolean>>();

  constructor(onSilence: (endpoint: Endpoint) => void) {
    this.#onSilence = onSilence;
  }

  /** Runs work that waits for this server; `signal` says when that has become vain. */
  async over<T>(endpoint: Endpoint, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const waiting = new AbortController();
    let timer = setTimeout(() => void look(), firstMs);
    let ended = false;
    const look = async () => {
      const isThere = await this.#ask(endpoint);
      if (ended) return;
      if (isThere) timer = setTimeout(() => void look(), everyMs);
      else waiting.abort();
    };
    try {
      return await work(waiting.signal);
    } finally {
      ended = true;
      clearTimeout(timer);
    }
  }

  #ask(endpoint: Endpoint): Promise<boolean> {
    const asking =
      this.#asking.get(endpoint) ??
      answers(endpoint)
        .then((isThere) => {
          if (!isThere) this.#onSilence(endpoint);
          return isThere;
        })
        .finally(() => this.#asking.delete(endpoint));
    this.#asking.set(endpoint, asking);
    return asking;
  }
}
