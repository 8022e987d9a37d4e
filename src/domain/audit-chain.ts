/**
 * The chain of the audit log: each line of an organization carries the SHA-256 of itself and of the line before it,
 * so that a line changed, taken out, put in or moved breaks every hash from there on.
 */
import { hash } from 'node:crypto';

/** What a line's hash covers. `at` is in milliseconds since the Unix epoch. */
export interface ChainedLine {
  readonly at: number;
  readonly orgId: string;
  readonly tokenId: string | null;
  readonly requestId: string | null;
  readonly action: string;
  readonly subject: string;
  readonly outcome: string;
}

/** The head of a chain that has no line yet. */
export const emptyChainHead = '';

/**
 * The hash of the line at `position` (1 is the organization's first, in the chain or from before it) behind `previous`, in hex. A JSON array says where each field
 * ends, so no two different lines are encoded alike.
 */
export function chainHash(previous: string, position: number, line: ChainedLine): string {
  const { at, orgId, tokenId, requestId, action, subject, outcome } = line;
  return hash(
    'sha256',
    JSON.stringify([previous, position, at, orgId, tokenId, requestId, action, subject, outcome]),
  );
}
