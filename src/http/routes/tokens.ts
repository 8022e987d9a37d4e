import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  createTokenOperation,
  deleteTokenOperation,
  listTokensOperation,
  type Token,
  validateTokenOperation,
} from '../../api/account.ts';
import type { TokenService } from '../../services/tokens.ts';
import { actorOf } from '../auth.ts';

/** Who am I; create, list and delete tokens. */
export const tokenRoutes =
  (tokens: TokenService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.get(
      '/v1/auth/validate',
      { config: { scope: 'any' }, schema: validateTokenOperation },
      async (request) => {
        const { email, orgName } = actorOf(request);
        return { valid: true, email, org_name: orgName };
      },
    );

    app.post(
      '/v1/token/create',
      { config: { audit: 'token.create', scope: 'any' }, schema: createTokenOperation },
      async (request, reply) => {
        reply.header('cache-control', 'no-store');
        return { token: await tokens.create(actorOf(request), request.body.name) };
      },
    );

    app.get(
      '/v1/tokens',
      { config: { scope: 'any' }, schema: listTokensOperation },
      async (request) => (await tokens.list(actorOf(request))).map(tokenView),
    );

    app.delete(
      '/v1/token/delete',
      { config: { audit: 'token.delete', scope: 'any' }, schema: deleteTokenOperation },
      async (request) => {
        await tokens.delete(actorOf(request), request.body.name);
        return { message: `The token "${request.body.name}" was deleted.` };
      },
    );
  };

type TokenRow = Awaited<ReturnType<TokenService['list']>>[number];

function tokenView(row: TokenRow): Token {
  return {
    name: row.name,
    prefix: row.prefix,
    scopes: JSON.parse(row.scopes) as string[],
    created_at: seconds(row.created_at),
    ...(row.last_used_at === null ? {} : { last_used_at: seconds(row.last_used_at) }),
    ...(row.expires_at === null ? {} : { expires_at: seconds(row.expires_at) }),
  };
}

const seconds = (ms: number): number => Math.floor(ms / 1000);
