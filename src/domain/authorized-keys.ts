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
 *
 * Whoever writes the file chooses what it costs to read. Hence the work is bound to its length, whatever it holds:
 * one string for the whole file (Latin-1, one character for each byte), lines that can hold no key passed over where
 * they stand, a wanted key compared as text before anything is decoded. There is no longest line: sshd reads
 * with getline(3) since OpenSSH 7.8, so a key behind a megabyte of options logs in, and has to be found.
 */

import { indexOutsideQuotes, type LineRules, readOptions } from './authorized-key-options.ts';
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
  /** What the options come to. */
  readonly rules: LineRules;
  readonly keyType: string;
  /** `type base64`. */
  readonly publicKey: string;
  readonly comment: string;
  readonly fingerprint: string;
  /** From the option `expiry-time`; absent when there is none or sshd could not read it. */
  readonly expiresAt?: Date;
}

const [LINE_FEED, RETURN, SPACE, TAB, HASH] = [0x0a, 0x0d, 0x20, 0x09, 0x23];
const RETRY_TOLERANCE_MS = 120_000;
const RETRY_TOLERANCE_SHARE = 0.1;

/** First word of a line -> type of the key inside. sshd takes the signature names of RFC 8332 for keys too. */
const TYPE_NAMES: ReadonlyMap<string, string> = new Map([
  ...[...KEY_TYPE_NAMES, 'ssh-dss'].map((name): [string, string] => [name, name]),
  ['rsa-sha2-256', 'ssh-rsa'],
  ['rsa-sha2-512', 'ssh-rsa'],
  ['webauthn-sk-ecdsa-sha2-nistp256@openssh.com', 'sk-ecdsa-sha2-nistp256@openssh.com'],
]);

const LONGEST_NAME_LENGTH = Math.max(...[...TYPE_NAMES.keys()].map(({ length }) => length));
/** `ssh-rsa`, a blank, and the base64 of nothing but that name. */
const SHORTEST_LINE_LENGTH = 23;

/** Where a line stands in the file; `end` is behind its LF. */
interface Span {
  readonly start: number;
  readonly end: number;
}

/** The texts of a line are Latin-1, one character for each byte. */
type KeyText = Pick<SshPublicKey, 'type' | 'base64'>;
type KeyLine = KeyText &
  Pick<AuthorizedLine, 'options' | 'comment'> & {
    /** The base64 as it stands there. */
    readonly word: string;
  };

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
  const wanted = parseGivenKey(key.publicKey);
  const text = file.toString('latin1');
  for (const span of keySpans(text)) {
    const found = parseLine(text, span, wanted);
    // A stray CR inside the base64 is nothing to rely on when access is asked for.
    const isPlain = found?.word.startsWith(wanted.base64);
    if (found && isPlain && gives(readOptions(found.options), key.expiresAt, now)) {
      return { file, outcome: 'present', line: lineText(file, span).toString() };
    }
  }
  const line = keyLine(key);
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
  return listKeyLines(file).filter((line) => !line.rules.forSigner);
}

/** Every line that carries a key, in the order of the file, whatever its options. */
export function listKeyLines(file: Buffer): AuthorizedLine[] {
  return [...eachKeyLine(file)];
}

/** The same one by one, for who stops early or lets others go on between two lines. */
export function* eachKeyLine(file: Buffer): Generator<AuthorizedLine, void, undefined> {
  const text = file.toString('latin1');
  for (const span of keySpans(text)) {
    const found = parseLine(text, span);
    if (found) yield describeLine(found, lineText(file, span));
  }
}

function describeLine(found: KeyLine, line: Buffer): AuthorizedLine {
  const rules = readOptions(found.options);
  return {
    line: line.toString(),
    options: latin1ToUtf8(found.options),
    rules,
    keyType: found.type,
    publicKey: `${found.type} ${found.base64}`,
    comment: latin1ToUtf8(found.comment),
    fingerprint: fingerprintOf(Buffer.from(found.base64, 'base64')),
    ...(Number.isFinite(rules.endMs) ? { expiresAt: new Date(rules.endMs) } : {}),
  };
}

function spansOfKey(file: Buffer, publicKey: string): Span[] {
  const wanted = parseGivenKey(publicKey);
  const text = file.toString('latin1');
  const spans: Span[] = [];
  for (const span of keySpans(text)) {
    const found = parseLine(text, span, wanted);
    if (found && !readOptions(found.options).forSigner) spans.push(span);
  }
  return spans;
}

/** From the end, without a search for the text: that could be made to compare nearly all of it at each byte. */
function spanOfLine(file: Buffer, line: string): Span[] {
  const wanted = Buffer.from(line);
  for (let end = file.length; end > 0; ) {
    let start = end - 1;
    while (start > 0 && file[start - 1] !== LINE_FEED) start -= 1;
    const mayEqual = end - start >= wanted.length && end - start <= wanted.length + 2;
    if (mayEqual && lineText(file, { start, end }).equals(wanted)) return [{ start, end }];
    end = start;
  }
  return [];
}

function parseGivenKey(publicKey: string): KeyText {
  const key = /[\r\n\0]/.test(publicKey) ? undefined : readKey(publicKey, 0);
  if (key === undefined) throw new TypeError('Expected one public key: type base64 [comment].');
  return key;
}

/** As it is written. sshd(8): UTC with the Z, which sshd reads since OpenSSH 9.1; an older one ignores the whole line. */
export function keyLine({ publicKey, expiresAt }: AuthorizedKey): string {
  if (expiresAt === undefined) return publicKey;
  const digits = expiresAt.toISOString().slice(0, 19).replace(/\D/g, '');
  return `expiry-time="${digits}Z" ${publicKey}`;
}

function gives(rules: LineRules, expiresAt: Date | undefined, now: Date): boolean {
  if (rules.forSigner || !rules.understood) return false;
  if (expiresAt === undefined) return rules.endMs === Number.POSITIVE_INFINITY;
  const lifetimeMs = Math.max(0, expiresAt.getTime() - now.getTime());
  const toleranceMs = Math.min(RETRY_TOLERANCE_MS, lifetimeMs * RETRY_TOLERANCE_SHARE);
  const wantedEnd = Math.floor(expiresAt.getTime() / 1000) * 1000;
  return rules.endMs >= wantedEnd - toleranceMs;
}

/** Undefined for a line that carries no key, or not the wanted one: a comment, or not to be read by sshd. */
function parseLine(file: string, { start, end }: Span, wanted?: KeyText): KeyLine | undefined {
  const line = file.slice(start, end);
  const nul = line.indexOf('\0');
  const text = nul < 0 ? line : line.slice(0, nul);
  const first = skipBlanks(text, 0);
  const plain = readKey(text, first, wanted);
  if (plain !== undefined) return { options: '', ...plain };
  const optionsEnd = indexOutsideQuotes(text, first, SPACE, TAB);
  const key = readKey(text, skipBlanks(text, optionsEnd), wanted);
  return key === undefined ? undefined : { options: text.slice(first, optionsEnd), ...key };
}

/** `type base64 [comment]`, where the base64 must hold a key of that type. */
function readKey(
  text: string,
  from: number,
  wanted?: KeyText,
): Omit<KeyLine, 'options'> | undefined {
  const nameEnd = endOfWord(text, from, from + LONGEST_NAME_LENGTH);
  const type = TYPE_NAMES.get(text.slice(from, nameEnd));
  const start = skipBlanks(text, nameEnd);
  if (type === undefined || start === nameEnd) return undefined;
  const end = endOfWord(text, start, text.length);
  const word = text.slice(start, end);
  const base64 = word.replace(/[\r\n\v\f]/g, '');
  const fits = wanted
    ? base64 === wanted.base64 && type === wanted.type
    : typeInside(base64) === type;
  if (!fits) return undefined;
  const comment = text.slice(skipBlanks(text, end)).replace(/\r?\n$/, '');
  return { type, base64, word, comment };
}

function typeInside(base64: string): string | undefined {
  return splitBlob(Buffer.from(base64, 'base64'))?.[0]?.toString('latin1');
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}

function skipBlanks(text: string, from: number): number {
  let index = from;
  while (isBlank(text.charCodeAt(index))) index += 1;
  return index;
}

function endOfWord(text: string, from: number, limit: number): number {
  const last = Math.min(limit, text.length);
  let index = from;
  while (index < last && !isBlank(text.charCodeAt(index))) index += 1;
  return index;
}

/** The lines that may carry a key: long enough for the shortest, and no comments. */
function* keySpans(text: string): Generator<Span, void, undefined> {
  for (let start = 0; start < text.length; ) {
    const newline = text.charCodeAt(start) === LINE_FEED ? start : text.indexOf('\n', start);
    const end = newline < 0 ? text.length : newline + 1;
    const mayHold =
      end - start >= SHORTEST_LINE_LENGTH && text.charCodeAt(skipBlanks(text, start)) !== HASH;
    if (mayHold) yield { start, end };
    start = end;
  }
}

function lineText(file: Buffer, { start, end }: Span): Buffer {
  if (file[end - 1] !== LINE_FEED) return file.subarray(start, end);
  const hasReturn = end - 2 >= start && file[end - 2] === RETURN;
  return file.subarray(start, hasReturn ? end - 2 : end - 1);
}

function latin1ToUtf8(text: string): string {
  return Buffer.from(text, 'latin1').toString();
}
