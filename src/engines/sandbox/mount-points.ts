/**
 * Makes a guest's disk fit to be started: every file that is to lie over its /etc needs an entry to lie on, and
 * the guest may have removed it, or put a link, a FIFO or the wrong kind of thing there. What is in the way is
 * moved aside under another name, never removed and never followed.
 *
 * This keeps an instance from locking itself out. It is not what keeps it in: isolation.ts does that, even
 * when an accomplice undoes the repair at once.
 */

import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { guestConflict } from '../guest-conflicts.ts';
import type { Identity } from './commands.ts';
import { asEngineError } from './failures.ts';
import { describeProblem } from './guest-conflicts.ts';
import { adopt, type Folder, Walk, within } from './guest-folders.ts';
import { DISK_FOLDERS, mountPointsInEtc } from './isolation.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = fs.constants;

/** @throws EngineError `guest_conflict`, `no_space` or `failed`. */
export function repairMountPoints(disk: string, owner: Identity): void {
  const walk = new Walk(disk);
  try {
    for (const name of DISK_FOLDERS) walk.openPassable(name, owner);
    const etc = walk.openPassable('etc', owner);
    for (const { name, isFolder } of mountPointsInEtc()) repair(walk, etc, name, isFolder, owner);
  } catch (error) {
    throw asEngineError(error, 'The disk of the instance could not be made ready.');
  } finally {
    walk.close();
  }
}

function repair(walk: Walk, etc: Folder, name: string, isFolder: boolean, owner: Identity): void {
  const stat = fs.lstatSync(within(etc, name), { throwIfNoEntry: false });
  if (isFolder ? stat?.isDirectory() : stat?.isFile()) return;
  try {
    if (stat !== undefined) {
      const aside = `${name}.moved-${randomBytes(6).toString('hex')}`;
      fs.renameSync(within(etc, name), within(etc, aside));
    }
    if (isFolder) makeFolder(walk, etc, name, owner);
    else makeFile(etc, name, owner);
  } catch (error) {
    throw describeProblem(etc, name, error, `/etc/${name}`);
  }
}

function makeFolder(walk: Walk, etc: Folder, name: string, owner: Identity): void {
  fs.mkdirSync(within(etc, name), 0o755);
  const folder = walk.openFolder(etc, name, `/etc/${name}`);
  if (folder === undefined) throw guestConflict(`/etc/${name}`, 'disappeared', 'Leave it in place');
  adopt(folder, owner);
}

function makeFile(etc: Folder, name: string, owner: Identity): void {
  const flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  const descriptor = fs.openSync(within(etc, name), flags, 0o644);
  try {
    if (fs.fstatSync(descriptor).uid !== owner.uid) {
      fs.fchownSync(descriptor, owner.uid, owner.gid);
    }
  } finally {
    fs.closeSync(descriptor);
  }
}
