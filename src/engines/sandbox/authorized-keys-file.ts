/**
 * Reads and replaces `~/.ssh/authorized_keys` inside a guest's disk, from outside.
 *
 * The guest owns every folder on the way and may change them at any moment: a symbolic link to a file of
 * the host, a FIFO that would block whoever opens it, a file of many gigabytes, a folder swapped between two
 * of our steps. The service may be root. So nothing is ever reached by its path:
 *
 * - Each folder is opened by name inside the one before (`/proc/self/fd/<n>/<name>`, which is how Node does
 *   openat(2)), never through a symbolic link, and stays open: what is open cannot be swapped.
 * - The file is opened without blocking and looked at before it is read. It has to be a plain file of the
 *   guest's, of a sane size.
 * - It is replaced, not written: temporary file, fsync, rename, fsync of the folder. sshd sees the old file
 *   or the new one, and a loss of power leaves one of the two.
 * - Whoever edits the file by hand takes no lock. So it is looked at once more between the flush, which is long, and the
 *   rename; what came meanwhile is read and kept.
 * - In the end the way is walked once more. If it no longer leads to the file just written, the guest moved
 *   things meanwhile, and the caller hears of it instead of a success.
 *
 * Calls that take microseconds are synchronous, which costs less than a trip through the thread pool; the
 * two flushes, which take nearly all of the time, are not.
 */

import * as fs from 'node:fs';
import { promisify } from 'node:util';
import {
  type AddKeyOutcome,
  type AuthorizedKey,
  authorizeKey,
  type KeyMatch,
  revokeKey,
} from '../../domain/authorized-keys.ts';
import { EngineError } from '../engine.ts';
import { guestConflict, obstacleAt, wayChanged } from '../guest-conflicts.ts';
import type { Identity } from './commands.ts';
import { asEngineError, codeOf } from './failures.ts';
import { describeProblem } from './guest-conflicts.ts';
import {
  type Folder,
  inodeOf,
  requireOwner,
  stateOf,
  Walk,
  WRITABLE_BY_OTHERS,
  within,
} from './guest-folders.ts';
import { createTemporary, removeQuietly } from './new-key-file.ts';

const { O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = fs.constants;
const READ_FLAGS = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

const FILE_NAME = 'authorized_keys';
const SIZE_LIMIT_BYTES = 1024 * 1024;
/** Of a change, while somebody else changes the file all the time. */
const ATTEMPTS = 20;

const flush = promisify(fs.fsync);

interface KeyFile {
  readonly descriptor: number;
  readonly text: Buffer;
  readonly mode: number;
  readonly state: string;
}

/** What is to come, and where that is noted: from then on a failure does not mean that nothing was changed. */
interface Landing {
  hasBegun: boolean;
}

/** Returns the very same buffer when there is nothing to change. */
type Change = (file: Buffer) => Buffer;

/** Authorizes a key on a disk; the outcome is on storage when this returns. */
export async function addKeyTo(
  disk: string,
  owner: Identity,
  key: AuthorizedKey,
  now: Date,
): Promise<AddKeyOutcome> {
  let outcome: AddKeyOutcome = { outcome: 'present', line: '' };
  const change = (before: Buffer): Buffer => {
    const { file, ...rest } = authorizeKey(before, key, now);
    outcome = rest;
    return file;
  };
  const landing = { hasBegun: false };
  try {
    await changeKeyFile(disk, owner, change, { create: true, landing });
    return outcome;
  } catch (error) {
    if (!landing.hasBegun || !(error instanceof EngineError)) throw error;
    throw new EngineError(error.kind, error.message, {
      cause: error,
      outcome: Promise.resolve(outcome),
    });
  }
}

/** Takes lines out and returns how many; a missing file stays missing. */
export async function removeKeyFrom(
  disk: string,
  owner: Identity,
  match: KeyMatch,
): Promise<number> {
  let removed = 0;
  const change = (before: Buffer): Buffer => {
    const result = revokeKey(before, match);
    removed = result.removed;
    return result.file;
  };
  await changeKeyFile(disk, owner, change, { create: false, landing: { hasBegun: false } });
  return removed;
}

/** The bytes of the file; empty when there is none. */
export function readKeyFile(disk: string, owner: Identity): Buffer {
  return walking(disk, (walk) => {
    const folder = walk.openKeyFolder();
    const file = folder === undefined ? undefined : openFile(walk, folder, owner);
    return file?.text ?? Buffer.alloc(0);
  });
}

/**
 * Applies a change and returns when its outcome, changed or not, is on storage. The caller sees to it that
 * one change at a time is under way on a disk.
 *
 * @throws EngineError `guest_conflict`, `no_space`, `not_running` (no such disk) or `failed`.
 */
async function changeKeyFile(
  disk: string,
  owner: Identity,
  change: Change,
  options: { create: boolean; landing: Landing },
): Promise<void> {
  const walk = new Walk(disk);
  try {
    const folder = walk.openSoundKeyFolder(owner, options);
    if (folder === undefined) return;
    for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
      const file = openFile(walk, folder, owner);
      const before = file?.text ?? Buffer.alloc(0);
      const after = change(before);
      if (after === before) return await keep(folder, file);
      if (await replace({ walk, folder, file, owner, landing: options.landing }, after)) return;
    }
    throw guestConflict(`${folder.name}/${FILE_NAME}`, 'is changed all the time', 'Let it rest');
  } catch (error) {
    throw asEngineError(error, 'The authorized_keys file of the instance could not be changed.');
  } finally {
    walk.close();
  }
}

/** Nothing to change, but who wrote the line may not have flushed it, or left the file open to others. */
async function keep(folder: Folder, file: KeyFile | undefined): Promise<void> {
  if (file === undefined) return;
  const mode = soundFileMode(file.mode);
  if (mode !== file.mode) fs.fchmodSync(file.descriptor, mode);
  await flush(file.descriptor);
  await flush(folder.descriptor);
}

interface Replacing {
  readonly walk: Walk;
  readonly folder: Folder;
  /** The one that was read. */
  readonly file: KeyFile | undefined;
  readonly owner: Identity;
  readonly landing: Landing;
}

/** False when somebody else has changed the file meanwhile. */
async function replace(
  { walk, folder, file, owner, landing }: Replacing,
  text: Buffer,
): Promise<boolean> {
  const temporary = createTemporary(folder);
  try {
    const mode = soundFileMode(file?.mode ?? 0o600);
    const inode = await fill(temporary.descriptor, text, mode, owner);
    if (stateNow(folder) !== file?.state) {
      removeQuietly(folder, temporary.name);
      return false;
    }
    landing.hasBegun = true;
    fs.renameSync(within(folder, temporary.name), within(folder, FILE_NAME));
    await flush(folder.descriptor);
    verify(walk, folder, inode);
    return true;
  } catch (error) {
    removeQuietly(folder, temporary.name);
    throw describeProblem(folder, FILE_NAME, error, `${folder.name}/${FILE_NAME}`);
  }
}

/** Writes and flushes the new file, closes it, and returns its inode number. */
async function fill(
  descriptor: number,
  text: Buffer,
  mode: number,
  owner: Identity,
): Promise<bigint> {
  try {
    fs.writeFileSync(descriptor, text);
    const { uid, gid, ino } = fs.fstatSync(descriptor, { bigint: true });
    if (Number(uid) !== owner.uid || Number(gid) !== owner.gid) {
      fs.fchownSync(descriptor, owner.uid, owner.gid);
    }
    fs.fchmodSync(descriptor, mode);
    await flush(descriptor);
    return ino;
  } finally {
    fs.closeSync(descriptor);
  }
}

/** sshd refuses a file that others can write to, and cannot read one that its owner cannot. */
function soundFileMode(mode: number): number {
  return (mode & ~WRITABLE_BY_OTHERS) | 0o400;
}

function walking<T>(disk: string, work: (walk: Walk) => T): T {
  const walk = new Walk(disk);
  try {
    return work(walk);
  } catch (error) {
    throw asEngineError(error, 'The authorized_keys file of the instance could not be read.');
  } finally {
    walk.close();
  }
}

/** Undefined when there is no such file. */
function openFile(walk: Walk, folder: Folder, owner: Identity): KeyFile | undefined {
  const name = `${folder.name}/${FILE_NAME}`;
  try {
    const descriptor = walk.keep(fs.openSync(within(folder, FILE_NAME), READ_FLAGS));
    const stat = fs.fstatSync(descriptor, { bigint: true });
    if (!stat.isFile()) throw describeProblem(folder, FILE_NAME, undefined, name);
    requireOwner(Number(stat.uid), owner, name);
    if (stat.size > SIZE_LIMIT_BYTES) throw obstacleAt(name, 'large');
    const text = readAtMost(descriptor, Number(stat.size));
    return { descriptor, text, mode: Number(stat.mode) & 0o777, state: stateOf(stat) };
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw describeProblem(folder, FILE_NAME, error, name);
  }
}

function stateNow(folder: Folder): string | undefined {
  const stat = fs.lstatSync(within(folder, FILE_NAME), { bigint: true, throwIfNoEntry: false });
  return stat && stateOf(stat);
}

/** Throws unless the way from the disk still leads to this folder and this file. */
function verify(walk: Walk, folder: Folder, inode: bigint): void {
  const again = walk.openKeyFolder();
  const same =
    again !== undefined &&
    inodeOf(fs.fstatSync(again.descriptor, { bigint: true })) ===
      inodeOf(fs.fstatSync(folder.descriptor, { bigint: true })) &&
    fs.lstatSync(within(again, FILE_NAME), { bigint: true, throwIfNoEntry: false })?.ino === inode;
  if (!same) throw wayChanged();
}

/** Never past the size that was looked at, though the guest may make the file longer meanwhile. */
function readAtMost(descriptor: number, sizeBytes: number): Buffer {
  const buffer = Buffer.alloc(sizeBytes);
  let length = 0;
  while (length < sizeBytes) {
    const count = fs.readSync(descriptor, buffer, length, sizeBytes - length, length);
    if (count === 0) break;
    length += count;
  }
  return buffer.subarray(0, length);
}
