/**
 * `GET /v1/snapshots/list`, answered without the framework when everything is at hand: the caller was recognized
 * within the last second and the answer is encoded. Scripts poll this one operation, and the framework's share of a
 * request is several times the cost of sending the bytes (`npm run bench` measures both). Whatever is not the plain
 * case (a condition, a body, a request id, a token not seen lately) goes the ordinary way, which answers the same.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { covers } from '../domain/scopes.ts';
import type { SnapshotService } from '../services/snapshots.ts';
import type { TokenService } from '../services/tokens.ts';
import { bearerToken } from './auth.ts';
import { jsonType } from './error-handler.ts';
import type { AnswerSeries, HttpStatistics } from './http-statistics.ts';
import type { RateLimiter } from './rate-limit.ts';
import { newRequestId } from './request-id.ts';

/** Headers that change nothing about the answer, as clients spell them. */
const plainHeaders = new Set(
  [
    'Connection',
    'User-Agent',
    'Accept',
    'Accept-Encoding',
    'Accept-Language',
    'Content-Type',
    // What a proxy adds says who calls, which the limiter reads for itself.
    'X-Forwarded-For',
    'X-Forwarded-Host',
    'X-Forwarded-Proto',
    'X-Real-IP',
    'Via',
  ].flatMap((name) => [name, name.toLowerCase()]),
);

/** True when the request was answered. */
export type FastPath = (request: IncomingMessage, response: ServerResponse) => boolean;

export interface FastPathOptions {
  readonly tokens: TokenService;
  readonly snapshots: SnapshotService;
  readonly limiter: RateLimiter;
  /** Undefined: nobody counts. */
  readonly statistics: HttpStatistics | undefined;
}

export function listFastPath(options: FastPathOptions): FastPath {
  const { tokens, snapshots, limiter } = options;
  const series = options.statistics?.series('/v1/snapshots/list', 'GET', 200);
  return series ? timed(answer, series) : answer;

  function answer(request: IncomingMessage, response: ServerResponse): boolean {
    if (request.url !== '/v1/snapshots/list' || request.method !== 'GET') return false;
    const authorization = plainAuthorization(request.rawHeaders);
    if (authorization === undefined) return false;
    const caller = tokens.recognize(bearerToken(authorization));
    if (caller === undefined || !covers(caller.scopes, 'snapshots:read')) return false;
    const list = snapshots.encodedNow(caller.orgId);
    if (!list) return false;
    const rateFields = limiter.takeKnown(request, caller.tokenId);
    if (rateFields === undefined) return false;
    response.writeHead(200, [
      'content-type',
      jsonType,
      'content-length',
      list.length,
      'etag',
      list.etag,
      'x-request-id',
      newRequestId(),
      ...rateFields,
    ]);
    if (list.short === undefined) response.end(list.body);
    else response.end(list.short, 'latin1');
    return true;
  }
}

const timed =
  (answer: FastPath, series: AnswerSeries): FastPath =>
  (request, response) => {
    const startedMs = performance.now();
    const isAnswered = answer(request, response);
    if (isAnswered) series.observe((performance.now() - startedMs) / 1000);
    return isAnswered;
  };

/** The one `Authorization` header of a request that has none but plain headers; undefined otherwise. */
function plainAuthorization(rawHeaders: readonly string[]): string | undefined {
  let authorization: string | undefined;
  let hasHost = false;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (plainHeaders.has(name)) continue;
    if (name === 'Host' || name === 'host') hasHost = true;
    else if (authorization !== undefined || (name !== 'Authorization' && name !== 'authorization'))
      return undefined;
    else authorization = rawHeaders[index + 1];
  }
  return hasHost ? authorization : undefined;
}
