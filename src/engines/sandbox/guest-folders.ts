/**
 * The way from a guest's disk to `~/.ssh`, folder by folder, each opened by name inside the one before
 * (`/proc/self/fd/<n>/<name>`, which is how Node does openat(2)) and never through a symbolic link.
 */

import * as fs from 'node:fs';
import { EngineError, LOGIN_USER } from '../engine.ts';
import { guestConflict, homeMissing, obstacleAt } from '../guest-conflicts.ts';
import type { Identity } from './commands.ts';
import { asEngineError, codeOf } from './failures.ts';
import { describeProblem } from './guest-conflicts.ts';

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = fs.constants;
const FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK;
/** open(2): O_PATH, which Node does not name, opens whatever the file mode says. */
const LOOK_FLAGS = 0o10000000 | O_DIRECTORY | O_NOFOLLOW;
/** What a folder needs so that its owner, sshd among the owner's processes, gets through. */
const PASSABLE = 0o700;

/** What sshd does not accept on a folder or file that decides who logs in. */
export const WRITABLE_BY_OTHERS = 0o022;

/** An open folder of the guest, and how a person inside would call it. */
export interface Folder {
  readonly descriptor: number;
  readonly name: string;
}

/** The path by which an entry of an open folder is reached, wherever that folder is by now. */
export function within(folder: Folder, name: string): string {
  return `/proc/self/fd/${folder.descriptor}/${name}`;
}

/** Every descriptor opened on the way; closing it closes them all. */
export class Walk {
  private readonly descriptors: number[] = [];
  private readonly root: Folder;

  constructor(disk: string) {
    try {
      this.root = { descriptor: this.keep(fs.openSync(disk, FOLDER_FLAGS)), name: '' };
    } catch (error) {
      if (codeOf(error) !== 'ENOENT') throw asEngineError(error, 'The disk cannot be opened.');
      throw new EngineError('not_running', 'The instance has no disk on this host.');
    }
  }

  /** `~/.ssh` as it is; undefined when there is none. */
  openKeyFolder(): Folder | undefined {
    return this.openFolder(this.openHome(), '.ssh', '~/.ssh');
  }

  /** `~/.ssh` as sshd wants it; undefined when it is missing and not to be made. */
  openSoundKeyFolder(owner: Identity, options: { create: boolean }): Folder | undefined {
    // Whoever closed one of them has locked itself out: a key in there would never be read.
    this.mendFolder(this.root, 'home', owner);
    const parent = this.openFolder(this.root, 'home', '/home');
    if (parent !== undefined) {
      makeSound(parent, owner);
      this.mendFolder(parent, LOGIN_USER, owner);
    }
    const home = this.openHome();
    makeSound(home, owner);
    this.mendFolder(home, '.ssh', owner);
    const folder = this.openFolder(home, '.ssh', '~/.ssh');
    if (folder === undefined && options.create) return this.makeKeyFolder(home, owner);
    if (folder !== undefined) makeSound(folder, owner);
    return folder;
  }

  /** One of the disk's own folders, which its owner may pass through from now on. */
  openPassable(entry: string, owner: Identity): Folder {
    this.mendFolder(this.root, entry, owner);
    const folder = this.openFolder(this.root, entry, `/${entry}`);
    if (folder === undefined) throw new EngineError('failed', 'The disk is incomplete.');
    return folder;
  }

  /** Opens a folder of the guest's to its owner, who may have closed it (chmod 000). */
  private mendFolder(parent: Folder, entry: string, owner: Identity): void {
    let descriptor: number;
    try {
      descriptor = this.keep(fs.openSync(within(parent, entry), LOOK_FLAGS));
    } catch {
      // Missing, or no folder: opening it for good says so.
      return;
    }
    const { uid, mode } = fs.fstatSync(descriptor);
    if (uid !== owner.uid || (mode & PASSABLE) === PASSABLE) return;
    fs.chmodSync(`/proc/self/fd/${descriptor}`, (mode & 0o7777) | PASSABLE);
  }

  private openHome(): Folder {
    const parent = this.openFolder(this.root, 'home', '/home');
    const home = parent && this.openFolder(parent, LOGIN_USER, '~');
    if (home !== undefined) return home;
    throw homeMissing();
  }

  private makeKeyFolder(home: Folder, owner: Identity): Folder {
    try {
      fs.mkdirSync(within(home, '.ssh'), 0o700);
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw describeProblem(home, '.ssh', error);
    }
    const folder = this.openFolder(home, '.ssh', '~/.ssh');
    if (folder === undefined) throw guestConflict('~/.ssh', 'disappeared', 'Leave it in place');
    adopt(folder, owner);
    fs.fsyncSync(home.descriptor);
    return folder;
  }

  /** Undefined when there is none. */
  openFolder(parent: Folder, entry: string, name: string): Folder | undefined {
    try {
      return { descriptor: this.keep(fs.openSync(within(parent, entry), FOLDER_FLAGS)), name };
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return undefined;
      throw describeProblem(parent, entry, error, name);
    }
  }

  /** Sees to it that the descriptor is closed in the end. */
  keep(descriptor: number): number {
    this.descriptors.push(descriptor);
    return descriptor;
  }

  close(): void {
    for (const descriptor of this.descriptors.splice(0)) fs.closeSync(descriptor);
  }
}

/** A folder that this process just made as root is given to the guest. */
export function adopt(folder: Folder, owner: Identity): void {
  const { uid } = fs.fstatSync(folder.descriptor);
  if (uid === process.getuid?.() && uid !== owner.uid) {
    fs.fchownSync(folder.descriptor, owner.uid, owner.gid);
  }
  makeSound(folder, owner);
}

/** sshd turns every key away when others may write to the folder: mended here, it may be all that locks a user out. */
function makeSound(folder: Folder, owner: Identity): void {
  const { uid, mode } = fs.fstatSync(folder.descriptor);
  requireOwner(uid, owner, folder.name);
  const sound = (mode & 0o7777 & ~WRITABLE_BY_OTHERS) | PASSABLE;
  if (sound !== (mode & 0o7777)) fs.fchmodSync(folder.descriptor, sound);
}

export function requireOwner(uid: number, owner: Identity, name: string): void {
  if (uid === owner.uid) return;
  throw obstacleAt(name, 'foreign');
}

export const inodeOf = ({ dev, ino }: fs.BigIntStats): string => `${dev}:${ino}`;

/** Another one after every change of the file, by whoever it is. */
export const stateOf = (stat: fs.BigIntStats): string =>
  `${inodeOf(stat)}:${stat.size}:${stat.ctimeNs}`;
