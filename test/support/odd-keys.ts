/** Public keys the contract refuses, and FIDO keys, which no tool makes without a token: built by hand. */

import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { type KeyPair, keyLine, keyParts, makeKeyPair } from './keys.ts';
import { runWell } from './run.ts';

const FIELD = 2n ** 255n - 19n;

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  let square = ((base % FIELD) + FIELD) % FIELD;
  for (let left = exponent; left > 0n; left >>= 1n) {
    if ((left & 1n) === 1n) result = (result * square) % FIELD;
    square = (square * square) % FIELD;
  }
  return result;
}

/** Is there a point of Curve25519 in Edwards form with this y? (RFC 8032 section 5.1.3) */
function isOnEdwardsCurve(y: bigint): boolean {
  const d = -121_665n * power(121_666n, FIELD - 2n);
  const squared = y * y;
  const ratio = (squared - 1n) * power(d * squared + 1n, FIELD - 2n);
  return power(ratio, (FIELD - 1n) / 2n) <= 1n;
}

/** 32 bytes that are no Ed25519 point. */
function offEdwardsCurve(): Buffer {
  let y = 2n;
  while (isOnEdwardsCurve(y)) y += 1n;
  const bytes = Buffer.alloc(32);
  bytes.writeBigUInt64LE(y);
  return bytes;
}

/** The uncompressed point of a new P-256 key. */
function newPoint(): Buffer {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const jwk = publicKey.export({ format: 'jwk' });
  const half = (value: string | undefined): Buffer => Buffer.from(value ?? '', 'base64url');
  return Buffer.concat([Buffer.from([4]), half(jwk.x), half(jwk.y)]);
}

/** The public keys of a FIDO token, as ssh-keygen -t ed25519-sk and ecdsa-sk would print them. */
export async function fidoKeys(folder: string): Promise<string[]> {
  const ordinary = await makeKeyPair(folder);
  const point = keyParts(ordinary.publicKey)[1] ?? '';
  const ed25519 = 'sk-ssh-ed25519@openssh.com';
  const ecdsa = 'sk-ecdsa-sha2-nistp256@openssh.com';
  return [
    keyLine(ed25519, [ed25519, point, 'ssh:'], 'token@example'),
    keyLine(ecdsa, [ecdsa, 'nistp256', newPoint(), 'ssh:'], 'token@example'),
  ];
}

/** The last character before the padding, changed in bits that carry nothing. */
function withLooseBits(line: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  return line.replace(/(\S)(=+)/, (_, last: string, padding: string) => {
    return `${alphabet[alphabet.indexOf(last) ^ 1]}${padding}`;
  });
}

async function certificate(folder: string, pair: KeyPair): Promise<string> {
  const authority = await makeKeyPair(folder);
  const subject = `${pair.keyFile}.pub`;
  await runWell('ssh-keygen', ['-q', '-s', authority.keyFile, '-I', 'x', '-n', 'ubuntu', subject]);
  return (await runWell('cat', [`${pair.keyFile}-cert.pub`])).trimEnd();
}

function dsaKey(): string {
  const number = (bytes: number): Buffer =>
    Buffer.concat([Buffer.from([0, 0xff]), randomBytes(bytes)]);
  const parts = ['ssh-dss', number(127), number(19), number(127), number(127)];
  return keyLine('ssh-dss', parts, 'dsa@example');
}

export interface OddKey {
  readonly name: string;
  readonly text: string;
  /** What the message has to speak of. */
  readonly says: RegExp;
}

type Odd = readonly [name: string, text: string, says: RegExp];

async function refusedTypes(folder: string, pair: KeyPair): Promise<Odd[]> {
  const short = await makeKeyPair(folder, 'short', ['-t', 'rsa', '-b', '1024']);
  const dsa = dsaKey();
  return [
    ['a DSA key', dsa, /DSA|ssh-dss/i],
    ['an RSA key of 1024 bits', short.publicKey, /1024|2048/],
    ['a certificate', await certificate(folder, pair), /certificate/i],
    ['an unknown type', pair.publicKey.replaceAll('ssh-ed25519', 'ssh-ed448'), /type|ssh-ed448/i],
    ['a type in capitals', pair.publicKey.replace('ssh-ed25519', 'SSH-ED25519'), /type|ssh-/i],
  ];
}

function refusedLines(pair: KeyPair, other: KeyPair): Odd[] {
  const key = pair.publicKey;
  const [type = '', blob = ''] = key.split(' ');
  return [
    ['nothing', '', /empty|public key/i],
    ['white space alone', ' \r\n\t ', /empty|public key/i],
    ['a type alone', type, /./],
    ['a blob alone', blob, /./],
    ['a command before the key', `command="rm -rf /" ${key}`, /option/i],
    ['a flag before the key', `restrict ${key}`, /option/i],
    ['several options', `from="10.0.0.0/8",no-pty ${key}`, /option/i],
    ['two keys', `${key}\n${other.publicKey}`, /line/i],
    ['two keys with CRLF', `${key}\r\n${other.publicKey}`, /line/i],
    ['a hidden second line', `${key}\n`.repeat(2), /line/i],
    ['a carriage return inside', key.replace('test', 'te\rst'), /line|control/i],
    ['a bell in the comment', `${key}\u0007`, /control/i],
    ['a NUL in the comment', `${key}\0x`, /control/i],
    ['an escape sequence', `${key} \u001b[31mred`, /control/i],
    ['a DEL in the comment', `${key} \u007f`, /control/i],
  ];
}

async function refusedBlobs(folder: string, pair: KeyPair): Promise<Odd[]> {
  const ecdsa = await makeKeyPair(folder, '', ['-t', 'ecdsa', '-b', '256']);
  const key = pair.publicKey;
  const [type = '', blob = ''] = key.split(' ');
  const point = Buffer.from(keyParts(ecdsa.publicKey)[2] ?? '');
  point.writeUInt8(point.readUInt8(64) ^ 1, 64);
  const curve = 'ecdsa-sha2-nistp256';
  const base64 = /base64|damaged|complete|malformed|copied/i;
  return [
    ['base64 with loose bits', withLooseBits(ecdsa.publicKey), /base64|canonical/i],
    ['base64 without its padding', ecdsa.publicKey.replace(/=+/, ''), /base64|canonical|padding/i],
    ['base64 of the URL kind', `${type} ${blob.slice(0, -4)}-_-_`, base64],
    ['a character that is no base64', `${type} ${blob.slice(0, 30)}!${blob.slice(31)}`, base64],
    ['a blob cut short', `${type} ${blob.slice(0, -8)}`, /./],
    ['a blob with more behind it', keyLine(type, [...keyParts(key), 'more']), /./],
    ['an inner type that differs', key.replace('ssh-ed25519', 'ssh-rsa'), /type|ssh-ed25519/i],
    ['an ECDSA point off its curve', keyLine(curve, [curve, 'nistp256', point]), /curve|point/i],
    ['an Ed25519 point off its curve', keyLine(type, [type, offEdwardsCurve()]), /curve|point/i],
    ['a curve that differs', keyLine(curve, [curve, 'nistp384', point]), /./],
  ];
}

async function refusedForms(folder: string, pair: KeyPair): Promise<Odd[]> {
  const rsa = await makeKeyPair(folder, '', ['-t', 'rsa', '-b', '2048']);
  const exported = (form: string, ...more: string[]): Promise<string> =>
    runWell('ssh-keygen', ['-e', '-m', form, '-f', `${rsa.keyFile}.pub`, ...more]);
  const secret = await runWell('cat', [pair.keyFile]);
  const pkcs8 = generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' });
  return [
    ['an RFC 4716 key', await exported('RFC4716'), /OpenSSH|ssh-keygen/i],
    ['a PKCS#8 public key', await exported('PKCS8'), /OpenSSH|ssh-keygen/i],
    ['a PEM public key', await exported('PEM'), /OpenSSH|ssh-keygen/i],
    ['an OpenSSH private key', secret, /exposed|compromised/i],
    ['a private key on one line', secret.replaceAll('\n', ' '), /exposed|compromised/i],
    ['a PKCS#8 private key', String(pkcs8), /exposed|compromised/i],
  ];
}

/** Every form the contract refuses, each a string that is new in every run. */
export async function oddKeys(folder: string): Promise<OddKey[]> {
  const [pair, other] = [await makeKeyPair(folder), await makeKeyPair(folder)];
  const all = [
    ...(await refusedTypes(folder, pair)),
    ...refusedLines(pair, other),
    ...(await refusedBlobs(folder, pair)),
    ...(await refusedForms(folder, pair)),
  ];
  return all.map(([name, text, says]) => ({ name, text, says }));
}
