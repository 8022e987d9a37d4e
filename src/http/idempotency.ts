/**
 * `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header) on every POST and PATCH: the same request under the
 * same key gets the same answer, byte for byte, for ten minutes. Other methods repeat harmlessly and ignore it.
 *
 * Answers below 400 are kept. A refusal has done nothing, so repeating it is a real try.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError, invalidRequest } from '../domain/errors.ts';
import type { Answer, KeptAnswerService, OnConfirm, OpenAnswer } from '../services/kept-answers.ts';
import { actorOf, bearerToken } from './auth.ts';
import { jsonType } from './error-handler.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The body as it came; only where an `Idempotency-Key` asks for it. */
    rawBody: Buffer | null;
    /** Set while the answer to a request with an `Idempotency-Key` is sought. */
    openAnswer: OpenAnswer | null;
    /** The body that was kept in the transaction of the work itself. */
    keptBody: string | null;
  }
  interface FastifyContextConfig {
    /** It makes room on the disk, so that it has to work on a full one. */
    frees?: boolean;
  }
}

const headerName = 'idempotency-key';
const methods = new Set(['POST', 'PATCH']);
/** What belongs to the answer; the rest belongs to the exchange. */
const keptHeaders = ['content-type', 'cache-control', 'location', 'link'];
const noBody = Buffer.alloc(0);

export function keepAnswers(app: FastifyInstance, answers: KeptAnswerService): void {
  app.decorateRequest('rawBody', null);
  app.decorateRequest('openAnswer', null);
  app.decorateRequest('keptBody', null);
  app.addHook('preHandler', (request, reply, done) => {
    if (request.actor === null || !isKeyed(request)) return done();
    begin(answers, request, reply).then((given) => given || done(), done);
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    const { openAnswer } = request;
    if (openAnswer === null) return done();
    request.openAnswer = null;
    settle(openAnswer, request, reply, payload).then((body) => done(null, body), done);
  });
}

const isKeyed = (request: FastifyRequest): boolean =>
  request.headers[headerName] !== undefined && methods.has(request.method);

/** To be called with the body before it is parsed. */
export function rememberBody(request: FastifyRequest, body: Buffer): void {
  if (isKeyed(request)) request.rawBody = body;
}

/** No body, an empty one, `{}` and nothing but nulls mean the same, as everywhere. Nulls are gone by now. */
const saysNothing = (body: unknown): boolean =>
  typeof body === 'object' && body !== null && Object.keys(body).length === 0;

/** True when the answer was there and is on its way. */
async function begin(
  answers: KeptAnswerService,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<boolean> {
  const key = parseKey(request.headers[headerName]);
  const keyed = {
    token: bearerToken(request.headers.authorization),
    key,
    method: request.method,
    path: request.url,
    body: saysNothing(request.body) ? noBody : (request.rawBody ?? noBody),
    frees: request.routeOptions.config.frees ?? false,
  };
  const begun = await answers.begin(actorOf(request), keyed).catch((error: unknown) => {
    if (isPassing(error)) reply.header('retry-after', '1');
    throw error;
  });
  if ('open' in begun) {
    request.openAnswer = begun.open;
    return false;
  }
  const { status, headers, body } = begun.given;
  reply.code(status).headers(headers).header('idempotency-replayed', 'true').send(body);
  return true;
}

/** Refused for what will be over in a moment. */
const isPassing = (error: unknown): boolean =>
  error instanceof AppError && (error.kind === 'conflict' || error.kind === 'rate_limited');

/** What is to be sent: whatever was kept with the work, to the byte. */
async function settle(
  open: OpenAnswer,
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
): Promise<unknown> {
  if (reply.statusCode >= 400) await open.release();
  else if (request.keptBody !== null) return request.keptBody;
  else await open.keepAfterwards(answerOf(reply, String(payload ?? '')));
  return payload;
}

function answerOf(reply: FastifyReply, body: string): Answer {
  const sent: Record<string, unknown> = { ...reply.getHeaders() };
  sent['content-type'] ??= jsonType;
  const headers = keptHeaders
    .filter((name) => sent[name] !== undefined)
    .map((name) => [name, String(sent[name])] as const);
  return { status: reply.statusCode, headers: Object.fromEntries(headers), body };
}

/**
 * For work that makes something: keeps its answer in the very transaction that makes it. Undefined when the request
 * carries no `Idempotency-Key`. Status and headers of `reply` must be set before.
 */
export function keepWithWork<T>(
  request: FastifyRequest,
  reply: FastifyReply,
  view: (result: T) => object,
): OnConfirm<T> | undefined {
  const { openAnswer } = request;
  if (openAnswer === null) return undefined;
  return async (tx, result) => {
    const body = String(reply.serialize(view(result)));
    await openAnswer.keep(tx, answerOf(reply, body));
    request.keptBody = body;
  };
}

/** A structured string (RFC 9651 section 3.3.3), or bare as most clients send it: both name the same key. */
export function parseKey(given: string | string[] | undefined): string {
  const text = typeof given === 'string' ? given.trim() : '';
  const quoted = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$/.exec(text)?.[1];
  const key = quoted?.replace(/\\(["\\])/g, '$1') ?? text;
  const isSound = quoted !== undefined ? !/^ *$/.test(key) : /^[\x21\x23-\x7e]+$/.test(key);
  if (isSound && key.length <= 255) return key;
  throw invalidRequest(
    'The header "Idempotency-Key" must be one key of 1 to 255 visible ASCII characters, such as a UUID.',
  );
}
