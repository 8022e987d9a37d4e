import { type Static, Type } from 'typebox';
import { allScopes } from '../domain/scopes.ts';
import { messageLike, noStore, responses } from './common.ts';

export const ValidateResponse = Type.Object(
  {
    valid: Type.Boolean({ description: 'Always true; a token that is not valid is a 401.' }),
    email: Type.String({ description: 'Whom the token belongs to.' }),
    org_name: Type.String({ description: 'The organization that the token acts for.' }),
  },
  { examples: [{ valid: true, email: 'you@example.org', org_name: 'lab' }] },
);
export type ValidateResponse = Static<typeof ValidateResponse>;

const name = Type.String({
  description:
    '1 to 64 letters, digits, spaces or any of ._@:/+-, unique among the live tokens of the organization; the first a letter or digit.',
});

export const TokenNameRequest = Type.Object({ name }, { examples: [{ name: 'laptop' }] });
export type TokenNameRequest = Static<typeof TokenNameRequest>;

export const CreateTokenRequest = Type.Object(
  {
    name,
    scopes: Type.Optional(
      Type.Array(Type.String(), {
        description: `What it may do, each at most once and none that your token lacks: ${allScopes.join(', ')}. Left out: what yours may do.`,
      }),
    ),
    expires_in_seconds: Type.Optional(
      Type.Integer({
        minimum: 60,
        maximum: 315_360_000,
        description:
          'It ends after this time, from 60 seconds to ten years, and never after yours. Left out: it ends when yours does.',
      }),
    ),
  },
  {
    examples: [
      { name: 'laptop' },
      { name: 'backup', scopes: ['snapshots:read', 'snapshots:write'], expires_in_seconds: 86_400 },
    ],
  },
);
export type CreateTokenRequest = Static<typeof CreateTokenRequest>;

export const CreateTokenResponse = Type.Object(
  { token: Type.String({ description: 'The token, shown this once.' }) },
  { examples: [{ token: 'berth_...' }] },
);
export type CreateTokenResponse = Static<typeof CreateTokenResponse>;

export const Token = Type.Object({
  name: Type.String({ description: 'As given when it was created.' }),
  prefix: Type.String({ description: 'The visible start of the token.' }),
  scopes: Type.Array(Type.String(), {
    description:
      'What it may do now; "admin" is everything. A member whose role shrinks has tokens that shrink.',
  }),
  created_at: Type.Integer({ description: 'Seconds since the Unix epoch, UTC.' }),
  last_used_at: Type.Optional(
    Type.Integer({
      description: 'Seconds since the Unix epoch, UTC, to the minute; left out when never used.',
    }),
  ),
  expires_at: Type.Optional(
    Type.Integer({
      description: 'Seconds since the Unix epoch, UTC; left out when it does not end by itself.',
    }),
  ),
});
export type Token = Static<typeof Token>;

export const TokenList = Type.Array(Token, {
  examples: [
    [{ name: 'laptop', prefix: 'berth_1a2b3c4d', scopes: ['admin'], created_at: 1_763_600_000 }],
  ],
});
export type TokenList = Static<typeof TokenList>;

const tags = ['Account'];
const badName =
  'invalid_request: malformed JSON, no name, or one with other characters. The message says what a name may be.';

export const validateTokenOperation = {
  operationId: 'validateToken',
  summary: 'Who am I?',
  description: 'Checks the token of this request and says whom it belongs to.',
  tags,
  response: responses(200, ValidateResponse, { description: 'The token is valid.' }),
};

export const createTokenOperation = {
  operationId: 'createToken',
  summary: 'Create a token',
  description:
    'Makes another token of yours, which never may do more or live longer than the one of this request. It is shown this once: the service keeps a hash of it.',
  tags,
  body: CreateTokenRequest,
  response: responses(200, CreateTokenResponse, {
    description: 'The token is made and valid.',
    headers: noStore,
    readsBody: true,
    errors: {
      400: 'invalid_request: malformed JSON, no name or one with other characters, an unknown, repeated or missing scope, or an end that is out of range or after that of your token.',
      403: 'forbidden: your token lacks a scope that is asked for; the message names it.',
      409: 'conflict: a live token has this name.',
    },
  }),
};

export const listTokensOperation = {
  operationId: 'listTokens',
  summary: 'List tokens',
  description: 'The live tokens of your organization, without their secrets.',
  tags,
  response: responses(200, TokenList, { description: 'The tokens; yours is one of them.' }),
};

export const deleteTokenOperation = {
  operationId: 'deleteToken',
  summary: 'Delete a token',
  description:
    'Ends a token of your organization: from the next request on it is a 401, within a second on every node. A token may delete itself; another one, only with the scope admin.',
  tags,
  body: TokenNameRequest,
  response: responses(200, messageLike('The token "laptop" was deleted.'), {
    description: 'The token is deleted.',
    readsBody: true,
    errors: {
      400: badName,
      403: 'forbidden: it is another token, and yours lacks the scope admin.',
      404: 'not_found: no live token of your organization has this name.',
    },
  }),
};
