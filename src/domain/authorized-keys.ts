/**
 * Adds, removes and lists keys in the bytes of an `authorized_keys` file. No I/O: bytes in, bytes out.
 *
 * The file belongs to whoever lives in the instance. It may hold options, comments, CRLF, other
 * encodings, half a line: whatever is not ours to change must come out as it went in. So nothing here
 * parses the whole file and prints it again. Lines are found in the bytes; adding appends, removing
 * cuts, and the rest is copied.
 *
 * What a line means is decided as sshd decides it (auth2-pubkeyfile.c, sshkey_read and
 * sshkey_advance_past_options in OpenSSH): split at LF; skip blanks; `#` starts a comment; try to read
 * a key; failing that, pass over one word of options, in which blanks may stand in double quotes and
 * `\"` is no quote; try again. A C string ends at a NUL, and base64 may hold a stray CR.
 *
 * sshd tries the lines in order until one lets the key in. Hence a second line for a key that is already
 * there is harmless but may widen what its owner narrowed (`command=`, `from=`): hand-written limits are
 * the owner's will and count as present. The one exception is time. A line that ends too early does not
 * give what was asked for, so a new line is added behind it; ends a little early, and it is most likely
 * the line of this very request, sent again.
 */

import {
  accessEnd,
  indexOutsideQuotes,
  isForSigner,
  isUnderstood,
} from './authorized-key-options.ts';
import { fingerprintOf, KEY_TYPE_NAMES, type SshPublicKey, splitBlob } from './ssh-public-key.ts';

/** A public key as it is to stand in `authorized_keys` (sshd(8), AUTHORIZED_KEYS FILE FORMAT). */
export interface AuthorizedKey {
  /** `type base64 [comment]`, one line, no options, no line ending; what `parsePublicKey(text).line` gave. */
  readonly publicKey: string;
  /** When the key stops to log in (written as the option `expiry-time`); absent: never. */
  readonly expiresAt?: Date;
}

/** Which lines to take out: every line that carries this key, or only the lines that are exactly this text. */
export type KeyMatch =
  | { readonly kind: 'key'; readonly publicKey: string }
  | { readonly kind: 'line'; readonly line: string };

export interface AddKeyOutcome {
  /** `present`: a line already gives this key at least the asked-for access; nothing was changed. */
  readonly outcome: 'added' | 'present';
  /** The line as it was written to the file (without line ending); the existing line when present. */
  readonly line: string;
}

/** One line that carries a key. Bytes that are not UTF-8 show as U+FFFD. */
export interface AuthorizedLine {
  /** The whole line, without its line ending. */
  readonly line: string;
  /** As written, without the blank that follows; empty when there are none. */
  readonly options: string;
  readonly keyType: string;
  /** `type base64`. */
  readonly publicKey: string;
  readonly comment: string;
  readonly fingerprint: string;
  /** From the option `expiry-time`; absent when there is none or sshd could not read it. */
  readonly expiresAt?: Date;
}

const LINE_FEED = 0x0a;
const RETRY_TOLERANCE_MS = 120_000;
const RETRY_TOLERANCE_SHARE = 0.1;

/** First word of a line -> type of the key inside. sshd takes the signature names of RFC 8332 for keys too. */
const TYPE_NAMES: ReadonlyMap<string, string> = new Map([
  ...[...KEY_TYPE_NAMES, 'ssh-dss'].map((name): [string, string] => [name, name]),
  ['rsa-sha2-256', 'ssh-rsa'],
  ['rsa-sha2-512', 'ssh-rsa'],
  ['webauthn-sk-ecdsa-sha2-nistp256@openssh.com', 'sk-ecdsa-sha2-nistp256@openssh.com'],
]);

/** Where a line stands in the file; `end` is behind its LF. */
interface Span {
  readonly start: number;
  readonly end: number;
}

/** The texts of a line are Latin-1, one character for each byte. */
type KeyText = Pick<SshPublicKey, 'type' | 'base64' | 'comment'>;
type KeyLine = KeyText & Pick<AuthorizedLine, 'options'>;

/**
 * Appends the key unless a line already gives it at least the asked-for access. A file without a final
 * newline gets one first. The retry tolerance is counted from `now` to `key.expiresAt`.
 *
 * @throws TypeError when `publicKey` is not `type base64 [comment]` on one line.
 */
export function authorizeKey(
  file: Buffer,
  key: AuthorizedKey,
  now: Date,
): { file: Buffer } & AddKeyOutcome {
  const { base64 } = parseGivenKey(key.publicKey);
  for (const span of linesHolding(file, base64)) {
    const found = parseLine(file.subarray(span.start, span.end));
    if (found?.base64 === base64 && gives(found.options, key.expiresAt, now)) {
      return { file, outcome: 'present', line: lineText(file, span).toString() };
    }
  }
  const line = formatLine(key);
  const complete = file.length === 0 || file.at(-1) === LINE_FEED;
  const addition = Buffer.from(`${complete ? '' : '\n'}${line}\n`);
  return { file: Buffer.concat([file, addition]), outcome: 'added', line };
}

/**
 * Cuts out whole lines with their line endings. By key: every line that carries it, with options too,
 * except `cert-authority` lines, which trust a signer and not a key. By line: the last one that is equal,
 * without regard to its line ending.
 *
 * @throws TypeError when `publicKey` is not `type base64 [comment]` on one line.
 */
export function revokeKey(file: Buffer, match: KeyMatch): { file: Buffer; removed: number } {
  const spans =
    match.kind === 'key' ? spansOfKey(file, match.publicKey) : spanOfLine(file, match.line);
  if (spans.length === 0) return { file, removed: 0 };
  const kept: Buffer[] = [];
  let offset = 0;
  for (const { start, end } of spans) {
    kept.push(file.subarray(offset, start));
    offset = end;
  }
  return { file: Buffer.concat([...kept, file.subarray(offset)]), removed: spans.length };
}

/** Every line that `revokeKey` by key would take out, in the order of the file: no `cert-authority` lines. */
export function listKeys(file: Buffer): AuthorizedLine[] {
  return listKeyLines(file).filter((line) => !isForSigner(line.options));
}

/** Every line that carries a key, in the order of the file, whatever its options. */
export function listKeyLines(file: Buffer): AuthorizedLine[] {
  return linesOf(file).flatMap((span) => {
    const found = parseLine(file.subarray(span.start, span.end));
    return found === undefined ? [] : [describeLine(found, lineText(file, span))];
  });
}

function describeLine(found: KeyLine, line: Buffer): AuthorizedLine {
  const end = accessEnd(found.options);
  return {
    line: line.toString(),
    options: latin1ToUtf8(found.options),
    keyType: found.type,
    publicKey: `${found.type} ${found.base64}`,
    comment: latin1ToUtf8(found.comment),
    fingerprint: fingerprintOf(Buffer.from(found.base64, 'base64')),
    ...(Number.isFinite(end) ? { expiresAt: new Date(end) } : {}),
  };
}

function spansOfKey(file: Buffer, publicKey: string): Span[] {
  const { base64 } = parseGivenKey(publicKey);
  return linesOf(file).filter(({ start, end }) => {
    const found = parseLine(file.subarray(start, end));
    return found?.base64 === base64 && !isForSigner(found.options);
  });
}

function spanOfLine(file: Buffer, line: string): Span[] {
  const wanted = Buffer.from(line);
  return linesOf(file)
    .filter((span) => lineText(file, span).equals(wanted))
    .slice(-1);
}

/** The type is not compared on its own: the blob begins with it, and `parseLine` saw that they agree. */
function parseGivenKey(publicKey: string): KeyText {
  const key = /[\r\n\0]/.test(publicKey) ? undefined : readKey(publicKey);
  if (key === undefined) throw new TypeError('Expected one public key: type base64 [comment].');
  return key;
}

/** sshd(8): UTC with the Z, which sshd reads since OpenSSH 9.1; an older one ignores the whole line. */
function formatLine({ publicKey, expiresAt }: AuthorizedKey): string {
  if (expiresAt === undefined) return publicKey;
  const digits = expiresAt.toISOString().slice(0, 19).replace(/\D/g, '');
  return `expiry-time="${digits}Z" ${publicKey}`;
}

function gives(options: string, expiresAt: Date | undefined, now: Date): boolean {
  if (isForSigner(options) || !isUnderstood(options)) return false;
  const end = accessEnd(options);
  if (expiresAt === undefined) return end === Number.POSITIVE_INFINITY;
  const lifetimeMs = Math.max(0, expiresAt.getTime() - now.getTime());
  const toleranceMs = Math.min(RETRY_TOLERANCE_MS, lifetimeMs * RETRY_TOLERANCE_SHARE);
  const wantedEnd = Math.floor(expiresAt.getTime() / 1000) * 1000;
  return end >= wantedEnd - toleranceMs;
}

/** Undefined for a line that carries no key: empty, a comment, or not to be read by sshd. */
function parseLine(bytes: Buffer): KeyLine | undefined {
  const [text = ''] = bytes.toString('latin1').split('\0', 1);
  const start = skipBlanks(text, 0);
  if (start === text.length || text[start] === '#') return undefined;
  const plain = readKey(text.slice(start));
  if (plain !== undefined) return { options: '', ...plain };
  const end = indexOutsideQuotes(text, start, ' \t');
  const key = readKey(text.slice(skipBlanks(text, end)));
  return key === undefined ? undefined : { options: text.slice(start, end), ...key };
}

/** `type base64 [comment]`, where the base64 must hold a key of that type. */
function readKey(text: string): KeyText | undefined {
  const [, name = '', word = ''] = /^([^ \t]+)[ \t]+([^ \t]+)/.exec(text) ?? [];
  const type = TYPE_NAMES.get(name);
  if (type === undefined) return undefined;
  const base64 = word.replace(/[\r\n\v\f]/g, '');
  const [innerType] = splitBlob(Buffer.from(base64, 'base64')) ?? [];
  if (innerType?.toString('latin1') !== type) return undefined;
  const comment = text.slice(skipBlanks(text, text.indexOf(word, name.length) + word.length));
  return { type, base64, comment: comment.replace(/\r?\n$/, '') };
}

function skipBlanks(text: string, from: number): number {
  let index = from;
  while (text[index] === ' ' || text[index] === '\t') index += 1;
  return index;
}

function linesOf(file: Buffer): Span[] {
  const spans: Span[] = [];
  for (let start = 0; start < file.length; ) {
    const newline = file.indexOf(LINE_FEED, start);
    const end = newline < 0 ? file.length : newline + 1;
    spans.push({ start, end });
    start = end;
  }
  return spans;
}

/** The lines in which the text occurs, found without a look at the others. */
function linesHolding(file: Buffer, text: string): Span[] {
  const spans: Span[] = [];
  for (let hit = file.indexOf(text); hit >= 0; ) {
    const newline = file.indexOf(LINE_FEED, hit);
    const end = newline < 0 ? file.length : newline + 1;
    spans.push({ start: file.lastIndexOf(LINE_FEED, hit) + 1, end });
    hit = file.indexOf(text, end);
  }
  return spans;
}

function lineText(file: Buffer, { start, end }: Span): Buffer {
  if (file[end - 1] !== LINE_FEED) return file.subarray(start, end);
  const hasReturn = end - 2 >= start && file[end - 2] === 0x0d;
  return file.subarray(start, hasReturn ? end - 2 : end - 1);
}

function latin1ToUtf8(text: string): string {
  return Buffer.from(text, 'latin1').toString();
}
