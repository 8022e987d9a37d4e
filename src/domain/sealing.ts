/**
 * Sealing what must not be readable at rest: AES-256-GCM (NIST SP 800-38D) under a key that HKDF-SHA256 (RFC 5869)
 * derives from a secret of the caller's. The secret is stored nowhere, so neither the database nor the service can
 * open what lies there until the caller comes back.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  type Encoding,
  hkdfSync,
  randomBytes,
} from 'node:crypto';

const cipher = 'aes-256-gcm';
const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;
const encoding: Encoding = 'base64url';

/** A key for one purpose and one thing: what is derived with another purpose or salt has nothing to do with it. */
export function deriveKey(secret: string, purpose: string, salt: string): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, salt, purpose, keyBytes));
}

/** A hash that nobody can try out guesses on who does not have the key; hex. */
export function keyedHash(key: Buffer, parts: readonly (string | Buffer)[]): string {
  const hmac = createHmac('sha256', key);
  for (const part of parts) {
    const bytes = Buffer.from(part);
    // The length first: where one part ends and the next begins is hashed too.
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    hmac.update(length).update(bytes);
  }
  return hmac.digest('hex');
}

/** `binding` is not in the result, but opening wants the same again. */
export function seal(
  key: Buffer,
  binding: string,
  text: string,
  nonce: Buffer = randomBytes(nonceBytes),
): string {
  const sealing = createCipheriv(cipher, key, nonce, { authTagLength: tagBytes });
  sealing.setAAD(Buffer.from(binding));
  const sealed = [sealing.update(text, 'utf8'), sealing.final()];
  return Buffer.concat([nonce, ...sealed, sealing.getAuthTag()]).toString(encoding);
}

/** Throws unless key, binding and every bit are the same as when it was sealed. */
export function unseal(key: Buffer, binding: string, sealed: string): string {
  const bytes = Buffer.from(sealed, encoding);
  const opening = createDecipheriv(cipher, key, bytes.subarray(0, nonceBytes), {
    authTagLength: tagBytes,
  });
  opening.setAAD(Buffer.from(binding));
  opening.setAuthTag(bytes.subarray(-tagBytes));
  const opened = opening.update(bytes.subarray(nonceBytes, -tagBytes));
  return Buffer.concat([opened, opening.final()]).toString('utf8');
}
