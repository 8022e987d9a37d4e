/**
 * Speaks Incus's REST API (doc/rest-api.md of Incus 6.0): one request, one answer, over the local socket or HTTPS.
 *
 * What is not obvious:
 *
 * - Most changes are answered with an operation. Its end is waited for with `/wait`, whose HTTP status is 200 even when
 *   it failed. The path of the operation comes with a query of its own in a cluster, so it is parsed.
 * - Operations are forgotten five seconds after their end, and when the server restarts. A wait that finds none has
 *   the outcome `unknown_outcome`, and the caller looks at the object.
 * - The server closes a connection that was idle for 30 s. Ours are let go before that.
 * - Any member of a cluster serves any call. A member that cannot be connected to is passed over; a request that went
 *   out is never sent to a second member, unless it only reads.
 */

import { readFileSync } from 'node:fs';
import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request } from 'node:http';
import { Agent as HttpsAgent, request as secureRequest } from 'node:https';
import { IncusError, incusErrorOf } from './incus-error.ts';
import type { IncusOptions } from './options.ts';

export interface CallOptions {
  readonly project?: string;
  /** The member of a cluster that is to do it. */
  readonly target?: string | undefined;
  /** For the whole call, the end of the operation included. */
  readonly timeoutMs?: number;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** The part of an operation that callers read. */
export interface Operation {
  readonly id: string;
  readonly status_code: number;
  readonly metadata: unknown;
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HEAD';

const defaultTimeoutMs = 20_000;
const idleMs = 20_000;

/** One way to the server. */
interface Endpoint {
  readonly name: string;
  readonly send: typeof request;
  readonly options: Record<string, unknown>;
}

export class IncusClient {
  readonly endpoints: readonly Endpoint[];
  readonly #project: string;
  readonly #agents: (HttpAgent | HttpsAgent)[] = [];
  /** The endpoint that answered last. */
  #current = 0;

  constructor(options: Pick<IncusOptions, 'endpoints' | 'tls' | 'project'>) {
    this.#project = options.project;
    this.endpoints = options.endpoints.map((name) => this.#endpoint(name, options.tls));
  }

  #endpoint(name: string, tls: IncusOptions['tls']): Endpoint {
    if (name.startsWith('unix:')) {
      const agent = this.#keep(new HttpAgent({ keepAlive: true, timeout: idleMs }));
      const socketPath = name.slice('unix:'.length).replace(/^\/\/(?=\/)/, '');
      return { name, send: request, options: { agent, socketPath, host: 'incus' } };
    }
    const { hostname, port } = new URL(name);
    const agent = this.#keep(new HttpsAgent({ keepAlive: true, timeout: idleMs }));
    const host = hostname.replace(/^\[|\]$/g, '');
    const place = { agent, host, port: port === '' ? 8443 : Number(port) };
    return { name, send: secureRequest, options: { ...place, ...(tls && trust(tls)) } };
  }

  #keep<T extends HttpAgent | HttpsAgent>(agent: T): T {
    this.#agents.push(agent);
    return agent;
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
    method: 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: unknown,
    options: CallOptions = {},
  ): Promise<unknown> {
    const startedAt = performance.now();
    const { timeoutMs = defaultTimeoutMs } = options;
    const answer = parse(await this.call(method, path, body, options));
    if (answer.type !== 'async') return answer.metadata;
    const leftMs = timeoutMs - (performance.now() - startedAt);
    return (await this.wait(answer.operation, leftMs)).metadata;
  }

  /** Waits for an operation, by the path that Incus gave. Rejects when it failed. */
  async wait(operation: string, timeoutMs: number): Promise<Operation> {
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
    if (body.type === 'error' && body.error === 'context deadline exceeded')
      throw new IncusError('timeout', 'The operation has not ended in time.');
    if (body.type === 'error') throw incusErrorOf(body.error_code, body.error);
    const ended = body.metadata as Operation & { readonly err?: string };
    if (ended.status_code === 200) return ended;
    if (ended.status_code >= 400) throw incusErrorOf(ended.status_code, ended.err ?? '');
    throw new IncusError('timeout', 'The operation has not ended in time.');
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
        const answer = await this.#once(endpoint, method, path, body, options);
        this.#current = index;
        return answer;
      } catch (error) {
        failure = error;
        if (!mayTryElsewhere(method, error)) throw error;
      }
    }
    throw failure;
  }

  async #once(
    endpoint: Endpoint,
    method: Method,
    path: string,
    body: unknown,
    options: CallOptions,
  ): Promise<Answer> {
    try {
      return await exchange(endpoint, method, this.pathOf(path, options), body, options);
    } catch (error) {
      // An idle connection that the server closed just when we used it: nothing was read.
      if (method !== 'GET' || !(error instanceof IncusError) || error.kind !== 'unknown_outcome')
        throw error;
      return exchange(endpoint, method, this.pathOf(path, options), body, options);
    }
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
    for (const agent of this.#agents) agent.destroy();
  }
}

function trust(tls: NonNullable<IncusOptions['tls']>): Record<string, unknown> {
  const read = (path: string) => readFileSync(path, 'utf8');
  // Incus makes its own certificate: that one is trusted, whatever name it bears.
  return {
    cert: read(tls.certFile),
    key: read(tls.keyFile),
    ca: read(tls.serverCertFile),
    checkServerIdentity: () => undefined,
  };
}

/** Nothing went out, or asking twice does no harm. */
function mayTryElsewhere(method: Method, error: unknown): boolean {
  if (!(error instanceof IncusError)) return false;
  if (error.kind === 'unreachable') return true;
  return method === 'GET' && error.kind === 'unknown_outcome';
}

function exchange(
  endpoint: Endpoint,
  method: Method,
  path: string,
  body: unknown,
  options: CallOptions,
): Promise<Answer> {
  const payload = encode(body);
  const headers = {
    ...(payload && { 'content-length': payload.length }),
    ...(payload && !Buffer.isBuffer(body) && { 'content-type': 'application/json' }),
    ...options.headers,
  };
  const { timeoutMs = defaultTimeoutMs } = options;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new IncusError('timeout', `Incus did not answer within ${timeoutMs} ms.`));
      sent.destroy();
    }, timeoutMs);
    const sent = endpoint.send({ ...endpoint.options, method, path, headers });
    const fail = (error: unknown) => {
      clearTimeout(timer);
      reject(lost(sent, error));
    };
    sent.once('error', fail);
    sent.once('response', (response) => {
      collect(response).then((answer) => {
        clearTimeout(timer);
        if (answer.status < 400) resolve(answer);
        else reject(incusErrorOf(answer.status, errorText(answer)));
      }, fail);
    });
    sent.end(payload);
  });
}

function encode(body: unknown): Buffer | undefined {
  if (body === undefined || Buffer.isBuffer(body)) return body;
  return Buffer.from(JSON.stringify(body));
}

/** Without a connection nothing was done; with one, nobody knows. */
function lost(sent: ClientRequest, cause: unknown): IncusError {
  const connected = sent.socket !== null && !sent.socket.connecting && wasConnected(cause);
  return connected
    ? new IncusError('unknown_outcome', 'The connection to Incus was lost.', { cause })
    : new IncusError('unreachable', 'Incus cannot be reached.', { cause });
}

function wasConnected(cause: unknown): boolean {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  return !['ECONNREFUSED', 'ENOENT', 'EACCES', 'EHOSTUNREACH', 'ENETUNREACH'].includes(code);
}

async function collect(response: IncomingMessage): Promise<Answer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const { statusCode = 0, headers } = response;
  return { status: statusCode, headers, body: Buffer.concat(chunks) };
}

interface Envelope {
  readonly type: string;
  readonly operation: string;
  readonly error_code: number;
  readonly error: string;
  readonly metadata: unknown;
}

function parse({ body }: Answer): Envelope {
  try {
    return JSON.parse(body.toString('utf8')) as Envelope;
  } catch (cause) {
    throw new IncusError('refused', 'What answered is not Incus.', { cause });
  }
}

function errorText(answer: Answer): string {
  try {
    return parse(answer).error ?? '';
  } catch {
    return '';
  }
}
