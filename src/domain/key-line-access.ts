import type { AuthorizedLine } from './authorized-keys.ts';

/**
 * What a line of `authorized_keys` lets its key do, as sshd judges it: log in freely; log in with limits (`from=`,
 * `command=`, `restrict`); nothing any more; nothing, because sshd passes over the line; or, for `cert-authority`,
 * sign certificates that log in.
 */
export const lineAccesses = ['full', 'limited', 'signer', 'expired', 'ignored'] as const;
export type LineAccess = (typeof lineAccesses)[number];

export function accessOf(line: AuthorizedLine, nowMs: number): LineAccess {
  const { rules, keyType } = line;
  // sshd takes no DSA keys since OpenSSH 7.0, and an expiry-time that it cannot read costs the whole line.
  const unread = keyType === 'ssh-dss' || rules.endMs === Number.NEGATIVE_INFINITY;
  if (unread || !rules.understood) return 'ignored';
  if (rules.endMs <= nowMs) return 'expired';
  if (rules.forSigner) return 'signer';
  return rules.limited ? 'limited' : 'full';
}

/** What several lines of one key give together: the most that any of them does. */
export function mostAccess(accesses: readonly LineAccess[]): LineAccess | undefined {
  return lineAccesses.find((access) => accesses.includes(access));
}
