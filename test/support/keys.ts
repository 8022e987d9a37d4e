/** Key pairs made by ssh-keygen, and public keys built by hand that no tool would make. */

import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { runWell } from './run.ts';

export interface KeyPair {
  readonly keyFile: string;
  /** `type base64 comment`, without the newline. */
  readonly publicKey: string;
}

/** Makes a pair with ssh-keygen; `kind` is its options, such as ['-t', 'rsa', '-b', '2048']. */
export async function makeKeyPair(
  folder: string,
  comment = 'test@example',
  kind: readonly string[] = ['-t', 'ed25519'],
): Promise<KeyPair> {
  const keyFile = join(folder, `key-${randomUUID()}`);
  await runWell('ssh-keygen', ['-q', ...kind, '-N', '', '-C', comment, '-f', keyFile]);
  return { keyFile, publicKey: readFileSync(`${keyFile}.pub`, 'utf8').trimEnd() };
}

/** Saves a private key exactly as the service gave it. */
export function saveKey(folder: string, privateKey: string): string {
  const keyFile = join(folder, `generated-${randomUUID()}`);
  writeFileSync(keyFile, privateKey, { mode: 0o600 });
  return keyFile;
}

/** The public half of a private key file, as ssh-keygen derives it. */
export async function publicHalf(keyFile: string): Promise<string> {
  return (await runWell('ssh-keygen', ['-y', '-f', keyFile])).trimEnd();
}

/** SHA256:..., as ssh-keygen prints it, of one public key line. */
export async function fingerprintOf(publicKey: string): Promise<string> {
  const listed = await runWell('ssh-keygen', ['-lf', '-'], { input: `${publicKey}\n` });
  return listed.split(' ')[1] ?? '';
}

/** `type base64` of a key line, which is what makes it the same key. */
export function sameKeyPart(line: string): string {
  const found = /(?:^|\s)((?:sk-)?(?:ssh|ecdsa)-\S+ AAAA\S+)/.exec(line);
  return found?.[1] ?? '';
}

/** A string of the SSH wire format (RFC 4251 section 5): length, then bytes. */
export function wireString(value: string | Buffer): Buffer {
  const bytes = Buffer.from(value);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** A key line from the parts of its blob, the inner type among them. */
export function keyLine(type: string, parts: readonly (string | Buffer)[], comment = ''): string {
  const blob = Buffer.concat(parts.map(wireString)).toString('base64');
  return comment === '' ? `${type} ${blob}` : `${type} ${blob} ${comment}`;
}

/** The parts of the blob of a key line. */
export function keyParts(line: string): Buffer[] {
  const blob = Buffer.from(line.split(' ')[1] ?? '', 'base64');
  const parts: Buffer[] = [];
  for (let at = 0; at < blob.length; ) {
    const end = at + 4 + blob.readUInt32BE(at);
    parts.push(blob.subarray(at + 4, end));
    at = end;
  }
  return parts;
}
