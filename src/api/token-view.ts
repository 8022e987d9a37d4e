import type { Token } from './account.ts';

/** What is known of a token; times in milliseconds since the Unix epoch. */
export interface TokenFacts {
  readonly name: string;
  readonly prefix: string;
  readonly scopes: readonly string[];
  readonly createdAt: number;
  readonly lastUsedAt: number | null;
  readonly expiresAt: number | null;
}

/** The API and `berth admin` show the same, so that scripts read both alike. */
export const viewToken = (token: TokenFacts): Token => ({
  name: token.name,
  prefix: token.prefix,
  scopes: [...token.scopes],
  created_at: seconds(token.createdAt),
  ...(token.lastUsedAt !== null && { last_used_at: seconds(token.lastUsedAt) }),
  ...(token.expiresAt !== null && { expires_at: seconds(token.expiresAt) }),
});

const seconds = (ms: number): number => Math.floor(ms / 1000);
