import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import type { Log } from '../services/context.ts';
import { Callers } from './callers.ts';
import { handleError } from './error-handler.ts';
import type { Metrics } from './metrics.ts';
import { RateLimiter } from './rate-limit.ts';
import type { TlsIdentity } from './tls.ts';

/** What stands between a connection and the routes: whose it is, how many of them, in which words, and who counts. */
export interface Edge {
  readonly callers: Callers;
  readonly limiter: RateLimiter;
  /** Undefined: plain HTTP. */
  readonly tls?: TlsIdentity | undefined;
  /** Undefined: nobody counts. */
  readonly metrics?: Metrics | undefined;
  /** The token of `GET /metrics` beside the API; undefined: it is not there. */
  readonly metricsToken?: string | undefined;
}

/** Plain HTTP from anywhere, without limits. */
export function openEdge(log: Log): Edge {
  const callers = new Callers();
  return { callers, limiter: new RateLimiter({ limits: {}, callers, now: () => 0, log }) };
}

/** What the framework refuses before any hook, such as a path that is no path, counts as well. */
export const refuseCounted =
  (limiter: RateLimiter) =>
  (error: FastifyError, request: FastifyRequest, reply: FastifyReply): void => {
    try {
      limiter.admitAddress(request, reply);
      handleError(error, request, reply);
    } catch (refusal) {
      handleError(refusal, request, reply);
    }
  };
