import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  type CreateTokenRequest,
  createTokenOperation,
  deleteTokenOperation,
  listTokensOperation,
  validateTokenOperation,
} from '../../api/account.ts';
import { viewToken } from '../../api/token-view.ts';
import type { NewToken, TokenService } from '../../services/tokens.ts';
import { actorOf } from '../auth.ts';
import { keepWithWork } from '../idempotency.ts';

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
        const onConfirm = keepWithWork(request, reply, (token: string) => ({ token }));
        return { token: await tokens.create(actorOf(request), newToken(request.body), onConfirm) };
      },
    );

    app.get(
      '/v1/tokens',
      { config: { scope: 'any' }, schema: listTokensOperation },
      async (request) => (await tokens.list(actorOf(request))).map(viewToken),
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

const newToken = (body: CreateTokenRequest): NewToken => ({
  name: body.name,
  ...(body.scopes !== undefined && { scopes: body.scopes }),
  ...(body.expires_in_seconds !== undefined && { expiresInSeconds: body.expires_in_seconds }),
});
