/**
 * A typed client of the HTTP API, on nothing but the global `fetch`: the CLI uses it, and a browser can.
 *
 * Retries. A lost connection says nothing about whether the service did the work, so a request is sent
 * again only where doing it twice equals doing it once: every GET, `start`, `stop`, and `add_key` with a
 * public key. Never again: whatever makes or removes something (the second answer would be a conflict or a
 * "not found" for what in truth succeeded) and `add_key` that generates (a second pair would be left over).
 * A refused connection and a timeout are not retried at all: the caller learns of them at once.
 *
 * Secrets. No message of an error thrown here holds the token, a key, or a header.
 */

import type {
  CreateTokenResponse,
  TokenList,
  TokenNameRequest,
  ValidateResponse,
} from './account.ts';
import type { Message } from './common.ts';
import type { AddKeyRequest, AddKeyResponse, InstanceKey } from './instance-keys.ts';
import type {
  CreateInstanceRequest,
  CreateInstanceResponse,
  Instance,
  InstanceMap,
} from './instances.ts';
import type { Readiness } from './service.ts';
import type { CreateSnapshotRequest, SnapshotList } from './snapshots.ts';

/** The service answered, and the answer was no. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  /** The HTTP status. */
  readonly status: number;
  /** The contract's stable machine word, or `unexpected_answer` when what answered does not speak the contract. */
  readonly error: string;

  constructor(status: number, error: string, message: string) {
    super(message);
    this.status = status;
    this.error = error;
  }
}

/** No whole answer came: nothing listens there, the connection was lost, or the time was up. */
export class UnreachableError extends Error {
  override readonly name = 'UnreachableError';
  readonly url: string;
  /** In a few words, such as `connection refused`. */
  readonly reason: string;

  constructor(url: string, reason: string) {
    super(`No answer from ${url}: ${reason}.`);
    this.url = url;
    this.reason = reason;
  }
}

export interface ClientOptions {
  /** Where the service is, without `/v1`; may have a path. Credentials in it are refused. */
  readonly baseUrl: string;
  readonly token: string;
  readonly fetch?: typeof globalThis.fetch;
  /** For one attempt, its answer's body included. The service answers within 25 s. */
  readonly timeoutMs?: number;
}

export type Client = ReturnType<typeof createClient>;

/** Throws `TypeError` for a base URL or a token that cannot be used; its message does not repeat them. */
export function createClient(options: ClientOptions) {
  const send = createSender(options);
  return {
    /** What the service can do here; an `ApiError` of status 503 when it is not ready. */
    readiness: () => send<Readiness>('GET', '/readyz'),

    validateToken: () => send<ValidateResponse>('GET', '/v1/auth/validate'),
    /** The answer is the only place where the token is ever shown. */
    createToken: (body: TokenNameRequest) =>
      send<CreateTokenResponse>('POST', '/v1/token/create', { body }),
    listTokens: () => send<TokenList>('GET', '/v1/tokens'),
    deleteToken: (body: TokenNameRequest) => send<Message>('DELETE', '/v1/token/delete', { body }),

    createInstance: (body: CreateInstanceRequest) =>
      send<CreateInstanceResponse>('POST', '/v1/instances/create', { body }),
    /** Keyed by the instance's number. */
    listInstances: () => send<InstanceMap>('GET', '/v1/instances/list'),
    getInstance: (id: string) => send<Instance>('GET', '/v1/instances/{id}', { values: { id } }),
    deleteInstance: (id: string) =>
      send<Message>('POST', '/v1/instances/{id}/delete', { values: { id } }),
    startInstance: (id: string) =>
      send<Message>('POST', '/v1/instances/{id}/start', { values: { id }, repeatable: true }),
    stopInstance: (id: string) =>
      send<Message>('POST', '/v1/instances/{id}/stop', { values: { id }, repeatable: true }),

    /** Without `public_key` the answer carries a private key, shown this once. */
    addKey: (id: string, body: AddKeyRequest = {}) => {
      const repeatable = body.public_key !== undefined;
      const options = { values: { id }, body, repeatable };
      return send<AddKeyResponse>('POST', '/v1/instances/{id}/add_key', options);
    },
    listKeys: (id: string) =>
      send<InstanceKey[]>('GET', '/v1/instances/{id}/keys', { values: { id } }),
    /** `fingerprint` with or without `SHA256:`. */
    removeKey: (id: string, fingerprint: string) =>
      send<void>('DELETE', '/v1/instances/{id}/keys/{fingerprint}', {
        values: { id, fingerprint },
      }),

    createSnapshot: (body: CreateSnapshotRequest) =>
      send<Message>('POST', '/v1/snapshots/create', { body }),
    listSnapshots: () => send<SnapshotList>('GET', '/v1/snapshots/list'),
    /** By UUID. */
    deleteSnapshot: (id: string) => send<void>('DELETE', '/v1/snapshots/{id}', { values: { id } }),
  };
}

interface SendOptions {
  /** For the `{name}`s in the path. */
  readonly values?: Readonly<Record<string, string>>;
  readonly body?: object;
  /** Doing it twice equals doing it once; GETs always are. */
  readonly repeatable?: boolean;
}

const defaultTimeoutMs = 30_000;
const attemptsIfRepeatable = 3;

function createSender(options: ClientOptions) {
  const baseUrl = checkedBaseUrl(options.baseUrl);
  const headers = { authorization: `Bearer ${checkedToken(options.token)}` };
  const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
  const fetch = options.fetch ?? globalThis.fetch;

  async function attempt<T>(method: string, path: string, body: object | undefined): Promise<T> {
    const response = await fetch(baseUrl + path, {
      method,
      // A redirect would turn a POST into a GET or carry the token elsewhere.
      redirect: 'manual',
      signal: AbortSignal.timeout(timeoutMs),
      headers: body ? { ...headers, 'content-type': 'application/json' } : headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    return readAnswer(response.status, await response.text(), baseUrl) as T;
  }

  return async function send<T>(
    method: string,
    template: string,
    extra: SendOptions = {},
  ): Promise<T> {
    const path = fill(template, extra.values ?? {});
    let attemptsLeft = method === 'GET' || extra.repeatable ? attemptsIfRepeatable : 1;
    for (;;) {
      try {
        return await attempt<T>(method, path, extra.body);
      } catch (error) {
        if (error instanceof ApiError) throw error;
        attemptsLeft -= 1;
        if (attemptsLeft === 0 || !isLostConnection(error)) {
          throw new UnreachableError(baseUrl, reasonOf(error, timeoutMs));
        }
      }
    }
  };
}

/** Puts values into `{name}` of a path, one segment each. */
function fill(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}/g, (_whole, name: string) => {
    const value = values[name] ?? '';
    // URL parsing would swallow these and ask for another resource, and nothing has such a name.
    if (['', '.', '..'].includes(value)) {
      throw new ApiError(404, 'not_found', `"${value}" was not found.`);
    }
    return encodeURIComponent(value);
  });
}

function readAnswer(status: number, text: string, baseUrl: string): unknown {
  const isSuccess = status >= 200 && status < 300;
  if (isSuccess && text === '') return undefined;
  const value = parseJson(text);
  if (isSuccess && value !== undefined) return value;
  if (isErrorBody(value) && !isSuccess) throw new ApiError(status, value.error, value.message);
  const message = `What answers at ${baseUrl} (status ${status}) is not a Berth service. Check the URL.`;
  throw new ApiError(status, 'unexpected_answer', message);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isErrorBody(value: unknown): value is { error: string; message: string } {
  if (typeof value !== 'object' || value === null) return false;
  const body = value as Record<string, unknown>;
  return typeof body.error === 'string' && typeof body.message === 'string';
}

function checkedBaseUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new TypeError('The URL of the service must start with http:// or https://.');
  }
  // `fetch` refuses these with a message that repeats the password.
  if (url.username || url.password) {
    throw new TypeError('The URL of the service must not hold a user name or password.');
  }
  return (url.origin + url.pathname).replace(/\/+$/, '');
}

function checkedToken(token: string): string {
  // `fetch` refuses these with a message that repeats the token.
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new TypeError('The token is empty or holds characters that no token has.');
}

/** Codes of Node.js and of its `fetch` for a connection that was there and went away. */
const lostConnectionCodes = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

const isLostConnection = (error: unknown): boolean => lostConnectionCodes.has(codeOf(error));

const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'the host name is unknown',
  EAI_AGAIN: 'the host name cannot be looked up now',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ETIMEDOUT: 'the connection timed out',
  UND_ERR_CONNECT_TIMEOUT: 'the connection timed out',
};

/** Made from codes alone: the text of a foreign error could hold anything. */
function reasonOf(error: unknown, timeoutMs: number): string {
  if (error instanceof Error && error.name === 'TimeoutError') {
    return `nothing came within ${timeoutMs / 1000} s`;
  }
  if (isLostConnection(error)) return 'the connection was lost';
  if (isForbiddenPort(error)) {
    return 'its port is one that no HTTP client may use (fetch.spec.whatwg.org, "bad port"); let the service listen on another';
  }
  const code = codeOf(error);
  return reasons[code] ?? (code === '' ? 'the request failed' : `the request failed (${code})`);
}

/** The one failure of `fetch` that has a text and no code. */
const isForbiddenPort = (error: unknown): boolean =>
  error instanceof Error && error.cause instanceof Error && error.cause.message === 'bad port';

/** `fetch` wraps what happened as `cause`; with several addresses tried, that holds `errors`. */
function codeOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return '';
  const { code, cause } = error as { code?: unknown; cause?: unknown };
  return typeof code === 'string' ? code : codeOf(cause);
}
