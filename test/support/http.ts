/** One HTTP exchange, with the rules of the contract that hold for every answer checked on every answer. */

import assert from 'node:assert/strict';
import { type Agent, type IncomingHttpHeaders, request } from 'node:http';

const JSON_TYPE = 'application/json; charset=utf-8';
const ANSWER_LIMIT_MS = 25_000;

/** The contract's machine words, by status. */
export const WORDS: Readonly<Record<number, readonly string[]>> = {
  400: ['invalid_request'],
  401: ['unauthorized'],
  403: ['forbidden'],
  404: ['not_found'],
  405: ['method_not_allowed'],
  409: ['conflict', 'no_capacity'],
  413: ['payload_too_large'],
  415: ['unsupported_media_type'],
  422: ['idempotency_mismatch'],
  429: ['rate_limited'],
  500: ['internal'],
  502: ['engine_error', 'login_refused'],
  503: ['unavailable'],
  504: ['engine_timeout'],
};

const LEAKS = [
  /\n\s+at /,
  /\/(?:work|tmp|home|root|proc)\//,
  /sqlite|kysely/i,
  /\b(?:SELECT|INSERT) /,
];

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface Question {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  readonly agent?: Agent;
}

export interface ErrorBody {
  readonly code: number;
  readonly error: string;
  readonly message: string;
}

/** Sends the path and the headers exactly as given; no check at all. */
export function exchange(baseUrl: string, question: Question): Promise<Answer> {
  const { hostname, port } = new URL(baseUrl);
  const headers: Record<string, string> = { ...question.headers };
  if (question.body !== undefined) {
    headers['content-length'] ??= String(Buffer.byteLength(question.body));
  }
  return new Promise((resolve, reject) => {
    const call = request(
      {
        hostname,
        port,
        method: question.method,
        path: question.path,
        headers,
        agent: question.agent ?? false,
        timeout: ANSWER_LIMIT_MS,
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.once('error', reject);
        response.once('end', () => {
          const text = Buffer.concat(chunks).toString('utf8');
          resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
        });
      },
    );
    call.once('timeout', () => call.destroy(new Error(`No answer within ${ANSWER_LIMIT_MS} ms.`)));
    call.once('error', reject);
    call.end(question.body);
  });
}

function checkErrorHeaders(answer: Answer): void {
  if (answer.status === 401) assert.match(answer.headers['www-authenticate'] ?? '', /^Bearer\b/);
  if (answer.status === 405) assert.match(answer.headers.allow ?? '', /^[A-Z]+(, ?[A-Z]+)*$/);
}

/** The error body of the contract: exactly three fields, and nothing that says how we are made. */
export function checkErrorBody(status: number, text: string): ErrorBody {
  const body: unknown = JSON.parse(text);
  assert.ok(typeof body === 'object' && body !== null, `error body is ${text}`);
  assert.deepEqual(Object.keys(body).sort(), ['code', 'error', 'message']);
  const { code, error, message } = body as Record<keyof ErrorBody, unknown>;
  assert.equal(code, status);
  assert.ok(typeof error === 'string' && /^[a-z]+(_[a-z]+)*$/.test(error), `error: ${error}`);
  assert.ok((WORDS[status] ?? [error]).includes(error), `${error} for ${status}`);
  assert.ok(typeof message === 'string' && message.length > 0, `message: ${message}`);
  assert.ok(message.length <= 600, `a message of ${message.length} characters`);
  for (const leak of LEAKS) assert.doesNotMatch(message, leak);
  return { code: status, error, message };
}

/** What the contract says of every answer. `headOnly`: an answer to HEAD, which has no body. */
export function checkAnswer(answer: Answer, headOnly = false): void {
  const requestId = answer.headers['x-request-id'];
  assert.ok(typeof requestId === 'string' && requestId.length > 0, 'X-Request-Id is missing');
  if (answer.status === 204 || answer.status === 304) {
    assert.equal(answer.text, '');
    return;
  }
  if (answer.status < 400) return;
  checkErrorHeaders(answer);
  assert.equal(answer.headers['content-type'], JSON_TYPE);
  if (!headOnly) checkErrorBody(answer.status, answer.text);
}

export function checkJsonType(answer: Answer): void {
  assert.equal(answer.headers['content-type'], JSON_TYPE);
}

/** An exchange whose answer is checked. */
export async function ask(baseUrl: string, question: Question): Promise<Answer> {
  const answer = await exchange(baseUrl, question);
  checkAnswer(answer, question.method === 'HEAD');
  return answer;
}
