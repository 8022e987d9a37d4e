import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '../domain/errors.ts';
import { allows, type RequiredScope } from '../domain/scopes.ts';
import type { Actor } from '../services/context.ts';
import type { TokenService } from '../services/tokens.ts';
import type { RateLimiter } from './rate-limit.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set on every route that is not public. */
    actor: Actor | null;
  }
  interface FastifyContextConfig {
    /** Answers without a token. */
    public?: boolean;
    /** What the token must cover; a route that says nothing wants `admin`. */
    scope?: RequiredScope;
  }
}

/** Every route wants a token, unless its config says that it is public: a forgotten line fails closed. */
export function requireToken(
  app: FastifyInstance,
  tokens: TokenService,
  limiter: RateLimiter,
): void {
  app.decorateRequest('actor', null);
  app.addHook('onRequest', async (request, reply) => {
    const { config } = request.routeOptions;
    if (!config.unlimited) limiter.admitAddress(request, reply);
    if (request.is404 || config.public) return;
    const actor = await authenticate(request, reply, tokens, limiter);
    // Before it counts as a caller: what was refused for its number is not audited, or a flood would fill the database.
    limiter.admitToken(request, reply, actor.tokenId);
    request.actor = actor;
    requireScope(request.actor, config.scope ?? 'admin');
  });
}

async function authenticate(
  request: FastifyRequest,
  reply: FastifyReply,
  tokens: TokenService,
  limiter: RateLimiter,
): Promise<Actor> {
  const token = bearerToken(request.headers.authorization);
  limiter.admitGuess(request, reply, () => tokens.wasValid(token));
  try {
    return await tokens.authenticate(token, request.id);
  } catch (error) {
    if (error instanceof AppError && error.kind === 'unauthorized')
      limiter.countFailure(request, reply);
    throw error;
  }
}

export function requireScope(actor: Actor, required: RequiredScope): void {
  if (allows(actor.scopes, required)) return;
  const wanted = typeof required === 'string' ? required : required.join(' or ');
  throw new AppError(
    'forbidden',
    `This token may not do that: it lacks the scope ${wanted}. Ask an owner of the organization for a token that has it.`,
  );
}

/** The token of `Authorization: Bearer <token>` (RFC 6750 section 2.1); "" when there is none, which no token equals. */
export function bearerToken(header: string | undefined): string {
  if (header?.startsWith('Bearer ') && !header.includes(' ', 7)) return header.slice(7);
  const match = /^bearer +([^\s]+) *$/i.exec(header ?? '');
  return match?.[1] ?? '';
}

/** The caller; a route that has none was wired wrongly. */
export function actorOf(request: FastifyRequest): Actor {
  if (!request.actor) throw new AppError('internal', 'This operation has no caller.');
  return request.actor;
}
