import { type Static, Type } from 'typebox';

export const ValidateResponse = Type.Object({
  valid: Type.Boolean(),
  email: Type.String(),
  org_name: Type.String(),
});
export type ValidateResponse = Static<typeof ValidateResponse>;

export const TokenNameRequest = Type.Object({
  name: Type.String({
    description: '1 to 64 characters, unique among the live tokens of the organization.',
  }),
});
export type TokenNameRequest = Static<typeof TokenNameRequest>;

export const CreateTokenResponse = Type.Object({
  token: Type.String({ description: 'Shown once.' }),
});
export type CreateTokenResponse = Static<typeof CreateTokenResponse>;

export const Token = Type.Object({
  name: Type.String(),
  prefix: Type.String({ description: 'The visible start of the token.' }),
  scopes: Type.Array(Type.String()),
  created_at: Type.Integer({ description: 'Seconds since the Unix epoch, UTC.' }),
  last_used_at: Type.Optional(Type.Integer()),
  expires_at: Type.Optional(Type.Integer()),
});
export type Token = Static<typeof Token>;
export const TokenList = Type.Array(Token);
export type TokenList = Static<typeof TokenList>;
