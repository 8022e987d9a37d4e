/**
 * The programs that run inside a guest, as its login user, on `~/.ssh/authorized_keys`: constant text for any POSIX
 * shell, in guest-scripts. What differs from call to call comes as arguments, which no shell reads as its own.
 *
 * What is not obvious:
 *
 * - They run in the guest and with the rights of the login user, so a symbolic link leads nowhere that this user could
 *   not write to anyway. What a guest puts in the way is still refused, and the way is walked once more in the end:
 *   a success means that sshd reads the file that was written.
 * - All of ours hold `flock` on the folder. Whoever else edits the file does not. So it is looked at once more just before
 *   the rename, and what came meanwhile is read and kept: what can be lost is what comes in that last moment.
 * - A started process costs a millisecond, so what the shell has built in is used where it is exact.
 * - `append` decides only what cannot be misread: this very line is there, or the key's base64 is nowhere (sshd has no
 *   other way to write it that authorizeKey() would count as present). All else, options, comments, other spellings,
 *   is for authorizeKey() itself, by way of `read` and `replace`.
 * - `replace` gets the whole new file on its standard input, so every byte survives, and the SHA-256 of the old and of
 *   the new one: neither a file that changed meanwhile nor half an input is ever put in place. Ranges to keep
 *   would have to go through arguments, of which a file of 1 MiB needs more than fit.
 * - The deadline is checked just before the rename, by the guest's clock, and `timeout` ends what hangs: an exec that
 *   was held up does not add a key long after its caller heard that it failed.
 * - Every end has a status of its own. Zero is none of them: that is what a replaced shell would say.
 */

import { readFileSync } from 'node:fs';

const part = (name: string): string =>
  readFileSync(new URL(`guest-scripts/${name}.sh`, import.meta.url), 'utf8');

const change = part('folder') + part('change');

const appendScript = `until=$1 patience=$2 nonce=$3 since=$4 recent=$5 blob=$6 line=$7 make=1\n${change}${part('append')}`;
const replaceScript = `until=$1 patience=$2 nonce=$3 before=$4 after=$5 make=1\n${change}${part('replace')}`;
const readScript = `most=$1 make=\n${part('folder')}${part('read')}`;
const clockScript = 'date +%s\nexit 25\n';

export const sizeLimitBytes = 1024 * 1024;

export const status = {
  landed: 20,
  present: 21,
  unsure: 22,
  changed: 23,
  missing: 24,
  shown: 25,
  locked: 30,
  late: 31,
  noSpace: 32,
  notFlushed: 33,
  /** In place, but perhaps not for good. */
  landedUnflushed: 34,
  moved: 35,
  notRenamed: 36,
  inputLost: 37,
  toolMissing: 38,
  /** The name of the login user is another user's, or nobody's. */
  stranger: 39,
} as const;

/** When a change has to be over. */
export interface Limits {
  /** Seconds since the epoch on the guest's clock: nothing is put in place later. */
  readonly until: number;
  /** What is not over by then is ended. */
  readonly seconds: number;
}

function command(script: string, seconds: number, words: readonly (string | number)[]): string[] {
  const shell = ['/bin/sh', '-c', script, 'berth', ...words.map(String)];
  return ['/usr/bin/timeout', '-k', '1', String(seconds), ...shell];
}

/** For the lock: shorter, so that its own status tells of it. */
const patienceOf = (seconds: number): number => Math.max(1, seconds - 1);

export interface Append {
  readonly line: string;
  readonly base64: string;
  /** Seconds since the epoch: a line from then on may be that of an earlier attempt. 0: there was none. */
  readonly since: number;
  /** How many lines at the end of the file may be that one. */
  readonly recent: number;
  readonly nonce: string;
}

export function appendCommand({ until, seconds }: Limits, append: Append): string[] {
  const { nonce, since, recent, base64, line } = append;
  return command(appendScript, seconds, [
    until,
    patienceOf(seconds),
    nonce,
    since,
    recent,
    base64,
    line,
  ]);
}

export interface Replacement {
  /** SHA-256 in hexadecimal; `none` where there was no file. */
  readonly before: string;
  readonly after: string;
  readonly nonce: string;
}

export function replaceCommand({ until, seconds }: Limits, replacement: Replacement): string[] {
  const { nonce, before, after } = replacement;
  return command(replaceScript, seconds, [until, patienceOf(seconds), nonce, before, after]);
}

export const readCommand = (seconds: number): string[] =>
  command(readScript, seconds, [sizeLimitBytes + 1]);

/** Seconds since the epoch, for a guest whose clock is not the host's. */
export const clockCommand = (seconds: number): string[] => command(clockScript, seconds, []);
