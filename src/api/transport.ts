/**
 * How the client's requests travel.
 *
 * Retries. A lost connection says nothing about whether the service did the work, so a request is sent again only
 * where that is harmless: every GET, and every POST and PATCH, which carry an `Idempotency-Key` of their own, so that
 * the service does the work once and gives its answer again (a generated private key is not lost with a connection).
 * Never again: DELETE, whose second answer would be a "not found" for what in truth succeeded. POST and PATCH are also
 * tried again after an answer of 500 or more. A refused connection and a timeout are reported at once, unless the
 * connection was lost before.
 *
 * Secrets. No message of an error thrown here holds the token, a key, or a header.
 */

import { codeOf, isLostConnection, reasonOf } from './connection-failures.ts';

/** The service answered, and the answer was no. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  /** The HTTP status. */
  readonly status: number;
  /** The contract's stable machine word, or `unexpected_answer` when what answered does not speak the contract. */
  readonly error: string;
  /** When to come back, if the service said so. */
  readonly retryAfterSeconds: number | undefined;

  constructor(status: number, error: string, message: string, retryAfterSeconds?: number) {
    super(message);
    this.status = status;
    this.error = error;
    this.retryAfterSeconds = retryAfterSeconds;
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
  /** Left out: for what wants none. */
  readonly token?: string;
  readonly fetch?: typeof globalThis.fetch;
  /** For one attempt, its answer's body included. The service answers within 25 s. */
  readonly timeoutMs?: number;
  /** Waits before the next attempt. */
  readonly pause?: (pauseMs: number) => Promise<void>;
}

export interface SendOptions {
  /** For the `{name}`s in the path. */
  readonly values?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
  /** Added to the time for one attempt: the service is asked to take so long. */
  readonly patienceMs?: number;
  /** Gets the headers of a successful answer, or of a 304, for which `send` gives undefined. */
  readonly onHeaders?: (headers: Headers) => void;
}

const defaultTimeoutMs = 30_000;
const mostAttempts = 3;
const firstPauseMs = 250;
const longestPauseMs = 5000;
/** The service answers within 25 s; so long may the first of two equal requests be at work. */
const inFlightPatienceMs = 30_000;

export type Send = <T>(method: string, template: string, extra?: SendOptions) => Promise<T>;

/** Throws `TypeError` for a base URL or a token that cannot be used. */
export function createSender(options: ClientOptions): Send {
  const baseUrl = checkedBaseUrl(options.baseUrl);
  const { token } = options;
  const login = token === undefined ? {} : { authorization: `Bearer ${checkedToken(token)}` };
  const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
  const fetch = options.fetch ?? globalThis.fetch;
  const pause = options.pause ?? sleep;

  async function attempt(
    request: { method: string; path: string; key: string | undefined },
    { body, headers, patienceMs = 0, onHeaders }: SendOptions,
  ): Promise<unknown> {
    const response = await fetch(baseUrl + request.path, {
      method: request.method,
      // A redirect would turn a POST into a GET or carry the token elsewhere.
      redirect: 'manual',
      signal: AbortSignal.timeout(timeoutMs + patienceMs),
      headers: {
        ...headers,
        ...login,
        ...(request.key && { 'idempotency-key': request.key }),
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN);
    const answer = readAnswer(response.status, await response.text(), { baseUrl, retryAfter });
    onHeaders?.(response.headers);
    return answer;
  }

  return async function send<T>(
    method: string,
    template: string,
    extra: SendOptions = {},
  ): Promise<T> {
    const key = keyedMethods.has(method) ? newKey() : undefined;
    const request = { method, path: pathOf(template, extra), key };
    const retries = new Retries({
      lost: method === 'GET' || key !== undefined,
      failed: key !== undefined,
    });
    for (;;) {
      try {
        return (await attempt(request, extra)) as T;
      } catch (error) {
        const pauseMs = retries.pauseAfter(error);
        if (pauseMs !== undefined) await pause(pauseMs);
        else if (error instanceof ApiError) throw error;
        else
          throw new UnreachableError(baseUrl, reasonOf(error, timeoutMs + (extra.patienceMs ?? 0)));
      }
    }
  };
}

/** Decides for one request whether, and when, it is sent again. */
class Retries {
  readonly #after: { readonly lost: boolean; readonly failed: boolean };
  #attempts = 0;
  #waitedMs = 0;

  /** Whether it is repeated after a lost connection, and after an answer of 500 or more. */
  constructor(after: { lost: boolean; failed: boolean }) {
    this.#after = after;
  }

  /** How long to wait before the next attempt; undefined when there is to be none. */
  pauseAfter(error: unknown): number | undefined {
    if (isStillInFlight(error) && this.#waitedMs < inFlightPatienceMs) {
      const pauseMs = askedPauseMs(error) ?? firstPauseMs;
      this.#waitedMs += pauseMs;
      return pauseMs;
    }
    this.#attempts += 1;
    if (this.#attempts === mostAttempts || !this.#isWorthIt(error)) return undefined;
    return askedPauseMs(error) ?? firstPauseMs * 4 ** (this.#attempts - 1);
  }

  #isWorthIt(error: unknown): boolean {
    if (error instanceof ApiError) return this.#after.failed && isFailure(error);
    const isRestarting = this.#attempts > 1 && codeOf(error) === 'ECONNREFUSED';
    return this.#after.lost && (isRestarting || isLostConnection(error));
  }
}

/** The only 409 that names a time to come back. */
const isStillInFlight = (error: unknown): error is ApiError =>
  error instanceof ApiError && error.status === 409 && error.retryAfterSeconds !== undefined;

/** `login_refused`, and an answer that is not Berth's, would only be the same again. */
const isFailure = ({ status, error }: ApiError): boolean =>
  status >= 500 && error !== 'login_refused' && error !== 'unexpected_answer';

function askedPauseMs(error: unknown): number | undefined {
  const seconds = error instanceof ApiError ? error.retryAfterSeconds : undefined;
  return seconds === undefined ? undefined : Math.min(seconds * 1000, longestPauseMs);
}

const keyedMethods = new Set(['POST', 'PATCH']);

/** 128 random bits; `crypto.randomUUID` is not there on a page that came over plain HTTP. */
const newKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('');

const sleep = (pauseMs: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, pauseMs));

function pathOf(template: string, { values = {}, query = {} }: SendOptions): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value]],
  );
  const path = fill(template, values);
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
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

function readAnswer(
  status: number,
  text: string,
  { baseUrl, retryAfter }: { baseUrl: string; retryAfter: number },
): unknown {
  const isSuccess = (status >= 200 && status < 300) || status === 304;
  if (isSuccess && text === '') return undefined;
  const value = parseJson(text);
  if (isSuccess && value !== undefined) return value;
  if (isErrorBody(value) && !isSuccess) {
    const seconds = Number.isFinite(retryAfter) ? retryAfter : undefined;
    throw new ApiError(status, value.error, value.message, seconds);
  }
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
