import type { Token } from '../api/account.ts';
import { printLine, printTable, readableTime } from './output.ts';
import type { Terminal } from './terminal.ts';

/** A token as the operator's side of the program gives it, times in milliseconds. */
interface AdminToken {
  readonly name: string;
  readonly prefix: string;
  readonly scopes: readonly string[];
  readonly createdAt: number;
  readonly lastUsedAt: number | null;
  readonly expiresAt: number | null;
}

/** The same as the API shows it, so that scripts read both alike. */
export const tokenJson = (token: AdminToken): Token => ({
  name: token.name,
  prefix: token.prefix,
  scopes: [...token.scopes],
  created_at: seconds(token.createdAt),
  ...(token.lastUsedAt !== null && { last_used_at: seconds(token.lastUsedAt) }),
  ...(token.expiresAt !== null && { expires_at: seconds(token.expiresAt) }),
});

const seconds = (ms: number): number => Math.floor(ms / 1000);

/** A table for people; with a column of members where the tokens say whose they are. */
export function printTokens(
  terminal: Terminal,
  tokens: readonly (Token & { readonly email?: string })[],
  whenNone: string,
): void {
  const [first] = tokens;
  if (first === undefined) {
    printLine(terminal, whenNone);
    return;
  }
  const withEmail = first.email !== undefined;
  printTable(
    terminal,
    ['NAME', ...(withEmail ? ['MEMBER'] : []), 'STARTS WITH', 'CREATED', 'USED', 'ENDS', 'SCOPES'],
    tokens.map((token) => [
      token.name,
      ...(withEmail ? [token.email ?? ''] : []),
      token.prefix,
      readableTime(token.created_at),
      readableTime(token.last_used_at),
      readableTime(token.expires_at),
      token.scopes.join(','),
    ]),
  );
}
