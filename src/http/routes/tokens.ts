import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  CreateTokenResponse,
  type Token,
  TokenList,
  TokenNameRequest,
  ValidateResponse,
} from '../../api/account.ts';
import { Message, responses } from '../../api/common.ts';
import type { TokenService } from '../../services/tokens.ts';
import { actorOf } from '../auth.ts';

/** Who am I; create, list and delete tokens. */
export const tokenRoutes =
  (tokens: TokenService): FastifyPluginAsyncTypebox =>
  async (app) => {
    const tags = ['Account'];

    app.get(
      '/v1/auth/validate',
      {
        schema: {
          operationId: 'validateToken',
          summary: 'Who am I?',
          tags,
          response: responses(200, ValidateResponse),
        },
      },
      async (request) => {
        const { email, orgName } = actorOf(request);
        return { valid: true, email, org_name: orgName };
      },
    );

    app.post(
      '/v1/token/create',
      {
        config: { audit: 'token.create' },
        schema: {
          operationId: 'createToken',
          summary: 'Create a token',
          tags,
          body: TokenNameRequest,
          response: responses(200, CreateTokenResponse),
        },
      },
      async (request, reply) => {
        reply.header('cache-control', 'no-store');
        return { token: await tokens.create(actorOf(request), request.body.name) };
      },
    );

    app.get(
      '/v1/tokens',
      {
        schema: {
          operationId: 'listTokens',
          summary: 'List tokens',
          tags,
          response: responses(200, TokenList),
        },
      },
      async (request) => (await tokens.list(actorOf(request))).map(tokenView),
    );

    app.delete(
      '/v1/token/delete',
      {
        config: { audit: 'token.delete' },
        schema: {
          operationId: 'deleteToken',
          summary: 'Delete a token',
          tags,
          body: TokenNameRequest,
          response: responses(200, Message),
        },
      },
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
