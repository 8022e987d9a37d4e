import type { FastifyInstance, FastifyRequest } from 'fastify';
import { AppError, invalidRequest } from '../domain/errors.ts';
import { rememberBody } from './idempotency.ts';

const decoder = new TextDecoder('utf-8', { fatal: true });

/**
 * JSON bodies, read as the contract says: no body, an empty one and `{}` mean the same, `null` counts as absent,
 * unknown fields are ignored. Anything that is not JSON is a 415.
 */
export function readBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    /^application\/([\w.+-]+\+)?json\s*(;|$)/i,
    { parseAs: 'buffer' },
    async (request: FastifyRequest, body: Buffer) => {
      rememberBody(request, body);
      return body.length === 0 ? undefined : parse(body);
    },
  );
  app.addContentTypeParser('*', { parseAs: 'buffer' }, async (_request: unknown, body: Buffer) => {
    if (body.length === 0) return undefined;
    throw Object.assign(new Error('unsupported media type'), { statusCode: 415 });
  });
  app.addHook('preValidation', async (request) => {
    const body: unknown = request.body ?? {};
    request.body =
      typeof body === 'object' && !Array.isArray(body) ? withoutNulls(body ?? {}) : body;
  });
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(decoder.decode(body));
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw invalidRequest(
      'The body is not well-formed JSON in UTF-8. Check quotes, commas and brackets.',
    );
  }
}

function withoutNulls(body: object): object {
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null));
}
