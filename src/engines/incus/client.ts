/**
 * Speaks Incus's REST API (doc/rest-api.md of Incus 6.0): one request, one answer, over the local socket or HTTPS.
 *
 * What is not obvious:
 *
 * - Most changes are answered with an operation. Its end is waited for with `/wait`, whose HTTP status is 200 even when
 *   it failed. The path of the operation comes with a query of its own in a cluster, so it is parsed.
 * - Operations are forgotten five seconds after their end, and when the server restarts. A wait that finds none has
 *   the outcome `unknown_outcome`, and the caller looks at the object.
 * - Any member of a cluster serves any call. A member that cannot be connected to is passed over, and one that falls
 *   silent is left; a request that went out is never sent to a second member, unless it only reads.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Endpoint, endpointOf } from './endpoint.ts';
import { type Answer, type Changing, exchange, type Method, parse } from './exchange.ts';
import { IncusError, incusErrorOf, isFirewallRace, isIncusError } from './incus-error.ts';
import type { IncusOptions } from './options.ts';
import { answers, Watch } from './silence.ts';

export type { Answer, Upload } from './exchange.ts';

export interface CallOptions {
  readonly project?: string;
  /** The member of a cluster that is to do it. */
  readonly target?: string | undefined;
  /** For the answer, and for the end of the operation where `operationMs` says nothing else. */
  readonly timeoutMs?: number;
  /** For the whole call, the end of the operation included. */
  readonly operationMs?: number;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The part of an operation that callers read. */
export interface Operation {
  readonly id: string;
  readonly status_code: number;
  readonly metadata: unknown;
}

const defaultTimeoutMs = 20_000;
/** The member that has the operation may be lost meanwhile: a wait that long is heard of, or is over. */
const waitAtOnceMs = 10_000;
const firewallAttempts = 8;
const firewallPauseMs = 40;

export class IncusClient {
  readonly endpoints: readonly Endpoint[];
  readonly #project: string;
  /** The endpoint that answered last. */
  #current = 0;
  readonly #watch = new Watch((endpoint) => this.#leave(endpoint));

  constructor(options: Pick<IncusOptions, 'endpoints' | 'tls' | 'project'>) {
    this.#project = options.project;
    this.endpoints = options.endpoints.map((name) => endpointOf(name, options.tls));
  }

  /** The way that last worked, for what is not one request and one answer. */
  get current(): Endpoint | undefined {
    return this.endpoints[this.#current];
  }

  /** The `metadata` of a sync answer. */
  async get<T>(path: string, options: CallOptions = {}): Promise<T> {
    return (await this.getTagged<T>(path, options)).value;
  }

  /** The same with the ETag, for `If-Match`. */
  async getTagged<T>(path: string, options: CallOptions = {}): Promise<{ value: T; etag: string }> {
    const answer = await this.call('GET', path, undefined, options);
    return { value: parse(answer).metadata as T, etag: answer.headers.etag ?? '' };
  }

  /** A change that is done when this resolves, whether Incus answers at once or with an operation. */
  async change(
    method: Changing,
    path: string,
    body?: unknown,
    options: CallOptions = {},
  ): Promise<unknown> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#change(method, path, body, options);
      } catch (error) {
        if (!isFirewallRace(error) || attempt === firewallAttempts) throw error;
        await sleep(attempt * firewallPauseMs);
      }
    }
  }

  async #change(
    method: Changing,
    path: string,
    body: unknown,
    options: CallOptions,
  ): Promise<unknown> {
    const startedAt = performance.now();
    const { timeoutMs = defaultTimeoutMs, operationMs = timeoutMs } = options;
    const answer = parse(await this.call(method, path, body, options));
    if (answer.type !== 'async') return answer.metadata;
    const leftMs = operationMs - (performance.now() - startedAt);
    return (await this.wait(answer.operation, leftMs)).metadata;
  }

  /** Waits for an operation, by the path that Incus gave. Rejects when it failed. */
  async wait(operation: string, timeoutMs: number): Promise<Operation> {
    const giveUpAt = performance.now() + timeoutMs;
    for (;;) {
      const startedAt = performance.now();
      const ms = Math.min(giveUpAt - startedAt, waitAtOnceMs);
      const ended = await this.#waitFor(operation, ms);
      if (ended) return ended;
      const now = performance.now();
      // One that says so too early has ended with these words.
      if (now >= giveUpAt || now - startedAt < ms / 2)
        throw new IncusError('timeout', 'The operation has not ended in time.');
    }
  }

  /** Undefined while it goes on. */
  async #waitFor(operation: string, timeoutMs: number): Promise<Operation | undefined> {
    const { pathname, searchParams } = new URL(operation, 'http://incus');
    const query = Object.fromEntries(searchParams);
    const seconds = Math.max(1, Math.ceil(timeoutMs / 1000));
    const answer = await this.call('GET', `${pathname}/wait`, undefined, {
      query: { ...query, timeout: String(seconds) },
      timeoutMs: (seconds + 2) * 1000,
    }).catch((error: unknown) => {
      throw error instanceof IncusError && error.kind === 'not_found'
        ? new IncusError('unknown_outcome', 'Incus has forgotten the operation.', { cause: error })
        : error;
    });
    const body = parse(answer);
    if (body.type === 'error' && body.error === 'context deadline exceeded') return undefined;
    if (body.type === 'error') throw incusErrorOf(body.error_code, body.error);
    const ended = body.metadata as Operation & { readonly err?: string };
    if (ended.status_code === 200) return ended;
    if (ended.status_code >= 400) throw incusErrorOf(ended.status_code, ended.err ?? '');
    return undefined;
  }

  /** One request as it is; rejects with an IncusError on every status from 400 on. */
  async call(
    method: Method,
    path: string,
    body?: unknown,
    options: CallOptions = {},
  ): Promise<Answer> {
    const first = this.#current;
    let failure: unknown;
    for (let offset = 0; offset < this.endpoints.length; offset += 1) {
      const index = (first + offset) % this.endpoints.length;
      const endpoint = this.endpoints[index];
      if (!endpoint) break;
      try {
        const target = this.pathOf(path, options);
        const answer = await this.#send(endpoint, method, target, body, options);
        this.#current = index;
        return answer;
      } catch (error) {
        failure = error;
        if (!mayTryElsewhere(method, error)) throw error;
      }
    }
    throw failure;
  }

  async #send(
    endpoint: Endpoint,
    method: Method,
    path: string,
    body: unknown,
    { headers, timeoutMs = defaultTimeoutMs }: CallOptions,
  ): Promise<Answer> {
    const send = (signal?: AbortSignal) => {
      const request = { method, path, body, headers, timeoutMs, ...(signal && { signal }) };
      return exchange(endpoint, request).catch((error: unknown) => {
        const mayRepeat = method === 'GET' && isIncusError(error, 'unknown_outcome');
        if (!mayRepeat || signal?.aborted) throw error;
        // An idle connection that the server closed just when we used it: nothing was read.
        return exchange(endpoint, request);
      });
    };
    // Where there is no other to go to, the time that the caller gives is for this one.
    return this.endpoints.length > 1 ? this.#watch.over(endpoint, send) : send();
  }

  /** It does not answer: whoever comes next begins with another. */
  #leave(endpoint: Endpoint): void {
    if (this.current === endpoint) this.#current = (this.#current + 1) % this.endpoints.length;
  }

  /** Whether the server is there, whatever it can do at the moment; the first one, where there are more. */
  async answers(): Promise<boolean> {
    const { current } = this;
    return current !== undefined && answers(current);
  }

  /** The path with its query: project, target and what the caller wants. */
  pathOf(path: string, { project = this.#project, target, query = {} }: CallOptions): string {
    const all = new URLSearchParams({
      ...(project !== 'default' && { project }),
      ...(target !== undefined && { target }),
      ...query,
    });
    return all.size === 0 ? path : `${path}?${all}`;
  }

  close(): void {
    for (const { agent } of this.endpoints) agent.destroy();
  }
}

/** Nothing went out, or asking twice does no harm. */
function mayTryElsewhere(method: Method, error: unknown): boolean {
  if (!(error instanceof IncusError)) return false;
  if (error.kind === 'unreachable') return true;
  return method === 'GET' && error.kind === 'unknown_outcome';
}
