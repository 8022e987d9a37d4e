/** One request of HTTP and its answer, in time or not at all. */

import type { ClientRequest, IncomingMessage } from 'node:http';
import { pipeline, type Readable } from 'node:stream';
import type { Endpoint } from './endpoint.ts';
import { IncusError, incusErrorOf } from './incus-error.ts';

export type Changing = 'POST' | 'PUT' | 'PATCH' | 'DELETE';
export type Method = Changing | 'GET' | 'HEAD';

/** A body that is too large for memory. */
export type Upload = () => Readable;

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

export interface Request {
  readonly method: Method;
  /** With its query. */
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly timeoutMs: number;
  /** Ends it as if the connection had been lost. */
  readonly signal?: AbortSignal;
  /** On a connection of its own. */
  readonly fresh?: boolean;
}

/** Rejects with an IncusError on every status from 400 on. */
export function exchange(endpoint: Endpoint, request: Request): Promise<Answer> {
  const { method, path, body, timeoutMs, signal } = request;
  const payload = typeof body === 'function' ? undefined : encode(body);
  const headers = {
    ...(payload && { 'content-length': payload.length }),
    ...(payload && !Buffer.isBuffer(body) && { 'content-type': 'application/json' }),
    ...request.headers,
  };
  const agent = request.fresh ? false : endpoint.agent;
  return new Promise((resolve, reject) => {
    const sent = endpoint.send({ ...endpoint.place, agent, method, path, headers });
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', giveUp);
    };
    const fail = (error: unknown) => {
      end();
      reject(error instanceof IncusError ? error : lost(sent, error));
      sent.destroy();
    };
    const giveUp = () => fail(new Error('The server has fallen silent.'));
    const late = () =>
      fail(new IncusError('timeout', `Incus did not answer within ${timeoutMs} ms.`));
    const timer = setTimeout(late, timeoutMs);
    signal?.addEventListener('abort', giveUp);
    sent.on('error', fail);
    sent.once('response', (response) => {
      collect(response).then((answer) => {
        end();
        if (answer.status < 400) resolve(answer);
        else reject(incusErrorOf(answer.status, errorText(answer)));
      }, fail);
    });
    if (typeof body === 'function') pipeline((body as Upload)(), sent, () => undefined);
    else sent.end(payload);
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

export interface Envelope {
  readonly type: string;
  readonly operation: string;
  readonly error_code: number;
  readonly error: string;
  readonly metadata: unknown;
}

export function parse({ body }: Answer): Envelope {
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
