import { hash, randomBytes, randomUUID, randomUUIDv7 } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** A new UUID, version 4 (RFC 9562). */
export const newId = (): string => randomUUID();

const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const identifierPattern = /^(0|[1-9][0-9]{0,8})$/;

/**
 * A new UUID, version 7 (RFC 9562 section 5.7): sorts by the time of its making, so that a list in order of
 * (second, id) is also in the order in which things were asked for.
 */
export const newOrderedId = (): string => randomUUIDv7();

/** How a caller named an instance or a snapshot; undefined when the text can name neither. */
export type Reference = { readonly uuid: string } | { readonly identifier: number };

/** Reads `{id}`: a UUID in either case, or the number of an instance in its organization. */
export function parseReference(text: string): Reference | undefined {
  const lower = text.toLowerCase();
  if (uuidPattern.test(lower)) return { uuid: lower };
  if (identifierPattern.test(text)) return { identifier: Number(text) };
  return undefined;
}

const tokenPattern = /^berth_[0-9a-f]{72}$/;
const visiblePrefixLength = 14;

/** A bearer token and what is kept of it: never the token itself. */
export interface MintedToken {
  /** `berth_`, 256 random bits and their CRC-32, both in hex. */
  readonly token: string;
  readonly hash: string;
  readonly prefix: string;
}

export function mintToken(secret: Buffer = randomBytes(32)): MintedToken {
  const token = `berth_${secret.toString('hex')}${checksum(secret)}`;
  return { token, hash: hashToken(token), prefix: token.slice(0, visiblePrefixLength) };
}

/** False for a text that no service ever issued: a typo is told from a revoked token without a look-up. */
export function isTokenShaped(text: string): boolean {
  if (!tokenPattern.test(text)) return false;
  return checksum(Buffer.from(text.slice(6, 70), 'hex')) === text.slice(70);
}

/** SHA-256 in hex. A token has 256 random bits, so a slow hash would protect nothing more. */
export const hashToken = (token: string): string => hash('sha256', token);

const checksum = (secret: Buffer): string => crc32(secret).toString(16).padStart(8, '0');
