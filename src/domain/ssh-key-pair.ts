import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { parsePublicKey, type SshPublicKey } from './ssh-public-key.ts';

const KEY_TYPE = 'ssh-ed25519';
const MAGIC = Buffer.from('openssh-key-v1\0');
/** ssh-keygen breaks the base64 text after as many characters. */
const COLUMNS = 70;
/** The private section is padded to this many bytes when it is not encrypted (PROTOCOL.key section 3). */
const BLOCK_BYTES = 8;

export interface SshKeyPair {
  readonly publicKey: SshPublicKey;
  readonly privateKey: string;
}

/**
 * Makes an Ed25519 key pair. `privateKey` is a file for `ssh -i`: OpenSSH's own format without a passphrase, ending in a newline.
 *
 * @throws AppError `invalid_request` when the comment cannot stand in a public key line.
 */
export function generateKeyPair(comment: string): SshKeyPair {
  const { point, seed } = generateEd25519();
  const blob = Buffer.concat([sshString(KEY_TYPE), sshString(point)]);
  const publicKey = parsePublicKey(`${KEY_TYPE} ${blob.toString('base64')} ${comment}`);
  const privateSection = encodePrivateSection(point, seed, publicKey.comment);
  return { publicKey, privateKey: encodePrivateKey(blob, privateSection) };
}

/** The 32 bytes of each half (RFC 8032 section 5.1.5), out of their RFC 8037 form. */
function generateEd25519(): { point: Buffer; seed: Buffer } {
  const { x = '', d = '' } = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  return { point: Buffer.from(x, 'base64url'), seed: Buffer.from(d, 'base64url') };
}

/** What a passphrase would encrypt; the number given twice is how a reader knows that it decrypted well. */
function encodePrivateSection(point: Buffer, seed: Buffer, comment: string): Buffer {
  const check = randomBytes(4);
  const fields = [KEY_TYPE, point, Buffer.concat([seed, point]), comment].map(sshString);
  const section = Buffer.concat([check, check, ...fields]);
  const paddingBytes = -section.length & (BLOCK_BYTES - 1);
  return Buffer.concat([section, Buffer.from([1, 2, 3, 4, 5, 6, 7].slice(0, paddingBytes))]);
}

/** PROTOCOL.key of OpenSSH, section 1: cipher and key derivation `none`, no options, one key. */
function encodePrivateKey(blob: Buffer, privateSection: Buffer): string {
  const header = [MAGIC, sshString('none'), sshString('none'), sshString(''), uint32(1)];
  const file = Buffer.concat([...header, sshString(blob), sshString(privateSection)]);
  const base64 = file.toString('base64');
  const lines = Array.from({ length: Math.ceil(base64.length / COLUMNS) }, (_, index) =>
    base64.slice(index * COLUMNS, (index + 1) * COLUMNS),
  );
  const [first, last] = ['BEGIN', 'END'].map((word) => `-----${word} OPENSSH PRIVATE KEY-----`);
  return `${[first, ...lines, last].join('\n')}\n`;
}

/** RFC 4251 section 5: a length of four bytes, then the bytes; text as UTF-8. */
function sshString(value: string | Buffer): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([uint32(bytes.length), bytes]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
