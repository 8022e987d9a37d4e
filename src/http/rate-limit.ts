/**
 * Rate limits: per address for everything, per token for what has one, and a stricter one per address for tokens that
 * are not valid. The fields in the answers are those of draft-ietf-httpapi-ratelimit-headers up to version 06.
 * Why this is our own: docs/decisions/0007-rate-limits.md.
 */
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '../domain/errors.ts';
import { type RateLimit, RateWindows, type Standing } from '../domain/rate-window.ts';
import type { Log } from '../services/context.ts';
import type { Caller, Callers } from './callers.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Answers however often it is asked: whoever watches the service must not be refused. */
    unlimited?: boolean;
  }
}

export interface LimitSetting extends RateLimit {
  /** A default: whoever calls from this machine is not meant. */
  readonly sparesLocal: boolean;
}

/** Undefined: no limit. */
export interface RateLimits {
  readonly token?: LimitSetting | undefined;
  readonly address?: LimitSetting | undefined;
  readonly failedAuth?: LimitSetting | undefined;
}

class Limit {
  readonly windows: RateWindows;
  readonly #sparesLocal: boolean;

  constructor(setting: LimitSetting) {
    this.windows = new RateWindows(setting);
    this.#sparesLocal = setting.sparesLocal;
  }

  static from(setting: LimitSetting | undefined): Limit | undefined {
    return setting && new Limit(setting);
  }

  appliesTo(caller: Caller): boolean {
    return !(this.#sparesLocal && caller.isLocal);
  }
}

const noFields: readonly string[] = [];

export interface RateLimiterOptions {
  readonly limits: RateLimits;
  readonly callers: Callers;
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
  readonly log: Log;
}

export class RateLimiter {
  readonly #token: Limit | undefined;
  readonly #address: Limit | undefined;
  readonly #failedAuth: Limit | undefined;
  readonly #callers: Callers;
  readonly #now: () => number;
  readonly #log: Log;
  #saidIgnored = false;

  constructor({ limits, callers, now, log }: RateLimiterOptions) {
    this.#token = Limit.from(limits.token);
    this.#address = Limit.from(limits.address);
    this.#failedAuth = Limit.from(limits.failedAuth);
    this.#callers = callers;
    this.#now = now;
    this.#log = log;
  }

  /**
   * For the list's fast path: counts the request and gives the fields of its answer, or undefined when some limit is
   * reached. Then nothing is counted, and the ordinary way refuses the request.
   */
  takeKnown(request: IncomingMessage, tokenId: string): readonly string[] | undefined {
    const caller = this.#callers.of(request);
    const address = this.#address?.appliesTo(caller) ? this.#address.windows : undefined;
    const token = this.#token?.appliesTo(caller) ? this.#token.windows : undefined;
    if (!address && !token) return noFields;
    const nowMs = this.#now();
    if (address && !address.hasRoom(caller.group, nowMs)) return undefined;
    if (token && !token.take(tokenId, nowMs)) return undefined;
    address?.take(caller.group, nowMs);
    return fieldList(
      tighter(address?.standing(caller.group, nowMs), token?.standing(tokenId, nowMs)),
    );
  }

  /** Counts a request for its address; throws `rate_limited`. */
  admitAddress(request: FastifyRequest, reply: FastifyReply): void {
    this.#sayIgnored(request.raw);
    const caller = this.#callers.of(request.raw);
    const { address, group } = caller;
    this.#count(this.#address, { caller, key: group, reply, name: 'address', shown: { address } });
  }

  /** Counts a request for its token; throws `rate_limited`. */
  admitToken(request: FastifyRequest, reply: FastifyReply, tokenId: string): void {
    const caller = this.#callers.of(request.raw);
    const shown = { address: caller.address, tokenId };
    this.#count(this.#token, { caller, key: tokenId, reply, name: 'token', shown });
  }

  /**
   * Throws `rate_limited` when too many tokens from there were wrong; before the token is looked up, or guessing would
   * go on. A token that was valid before is no guess: `isKnown` lets the neighbours behind one address pass.
   */
  admitGuess(request: FastifyRequest, reply: FastifyReply, isKnown: () => boolean): void {
    const caller = this.#callers.of(request.raw);
    const limit = this.#failedAuth;
    if (!limit?.appliesTo(caller) || limit.windows.hasRoom(caller.group, this.#now())) return;
    if (isKnown()) return;
    this.#refuseGuess(limit, caller, reply);
  }

  /** Counts a wrong token; throws `rate_limited` when requests sent at once have used up the limit meanwhile. */
  countFailure(request: FastifyRequest, reply: FastifyReply): void {
    const caller = this.#callers.of(request.raw);
    const limit = this.#failedAuth;
    if (!limit?.appliesTo(caller) || limit.windows.take(caller.group, this.#now())) return;
    this.#refuseGuess(limit, caller, reply);
  }

  #refuseGuess(limit: Limit, { address, group }: Caller, reply: FastifyReply): never {
    const refusal = { name: 'failed authentications', shown: { address } };
    return this.#refuse(limit.windows, group, reply, refusal);
  }

  #count(limit: Limit | undefined, request: Counted): void {
    const { caller, key, reply } = request;
    if (!limit?.appliesTo(caller)) return;
    const nowMs = this.#now();
    if (!limit.windows.take(key, nowMs)) this.#refuse(limit.windows, key, reply, request);
    addFields(reply, limit.windows.standing(key, nowMs));
  }

  #refuse(windows: RateWindows, key: string, reply: FastifyReply, { name, shown }: Refusal): never {
    const nowMs = this.#now();
    const { requests, windowSeconds } = windows.limit;
    if (windows.noteRefusal(key, nowMs))
      this.#log.warn({ limit: name, ...shown, requests, windowSeconds }, 'rate limit reached');
    const standing = windows.standing(key, nowMs);
    writeFields(reply, standing);
    reply.header('retry-after', String(standing.resetSeconds));
    throw new AppError('rate_limited', refusalText(name, standing));
  }

  #sayIgnored(request: IncomingMessage): void {
    if (this.#saidIgnored || !this.#callers.isIgnoredProxy(request)) return;
    this.#saidIgnored = true;
    const { address } = this.#callers.of(request);
    this.#log.warn(
      { address },
      'X-Forwarded-For is not believed: add the address to BERTH_TRUSTED_PROXIES if it is your proxy',
    );
  }
}

interface Refusal {
  readonly name: string;
  /** For the log. */
  readonly shown: object;
}

interface Counted extends Refusal {
  readonly caller: Caller;
  readonly key: string;
  readonly reply: FastifyReply;
}

const subjects: Readonly<Record<string, string>> = {
  token: 'This token has made too many requests.',
  address: 'Too many requests came from this address.',
};

function refusalText(name: string, { resetSeconds }: Standing): string {
  const subject = subjects[name] ?? 'Too many requests with a wrong token came from this address.';
  const unit = resetSeconds === 1 ? 'second' : 'seconds';
  return `${subject} Wait ${resetSeconds} ${unit} and try again.`;
}

/** Of two limits the one that will be reached first is worth telling. */
function tighter(one: Standing | undefined, other: Standing | undefined): Standing | undefined {
  if (!one || !other) return one ?? other;
  return other.remaining <= one.remaining ? other : one;
}

const fieldList = (standing: Standing | undefined): readonly string[] =>
  standing
    ? [
        'ratelimit-limit',
        String(standing.limit),
        'ratelimit-remaining',
        String(standing.remaining),
        'ratelimit-reset',
        String(standing.resetSeconds),
      ]
    : noFields;

/** Keeps those of a tighter limit that are there already. */
function addFields(reply: FastifyReply, standing: Standing): void {
  const there = reply.getHeader('ratelimit-remaining');
  if (there === undefined || standing.remaining <= Number(there)) writeFields(reply, standing);
}

function writeFields(reply: FastifyReply, { limit, remaining, resetSeconds }: Standing): void {
  reply.header('ratelimit-limit', String(limit));
  reply.header('ratelimit-remaining', String(remaining));
  reply.header('ratelimit-reset', String(resetSeconds));
}
