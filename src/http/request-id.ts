import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

/** A token that strayed into a place where none belongs: never logged, never sent back. */
export const tokenPattern = /berth_[0-9a-f]{16,}/gi;

const sanePattern = /^[A-Za-z0-9._:-]{1,128}$/;
const processPart = `${randomBytes(9).toString('hex')}-`;
let count = 0;

/** Unique among all processes. A counter is enough to find a line in the log, and costs less than a random number each. */
export const newRequestId = (): string => processPart + (count++).toString(36);

/** The caller's own id when it is a sane one, so that its logs and ours meet. */
export function requestId(request: IncomingMessage): string {
  const given = request.headers['x-request-id'];
  const sane = typeof given === 'string' && sanePattern.test(given) && !given.match(tokenPattern);
  return sane ? given : newRequestId();
}
