import type { Token } from '../api/account.ts';
import { printLine, printTable, readableTime } from './output.ts';
import type { Terminal } from './terminal.ts';

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
