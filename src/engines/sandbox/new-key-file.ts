/** The file that is to take the place of a guest's `authorized_keys`, while it is being written. */

import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { guestConflict } from '../guest-conflicts.ts';
import { codeOf } from './failures.ts';
import { describeProblem } from './guest-conflicts.ts';
import { type Folder, within } from './guest-folders.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = fs.constants;
const NEW_FILE_FLAGS = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
const TEMPORARY_NAME = '.authorized_keys.new';

/** The name is always the same, so that what a crash left is cleared away by the next change. */
export function createTemporary(folder: Folder): Folder {
  const names = [TEMPORARY_NAME, `${TEMPORARY_NAME}.${randomBytes(9).toString('hex')}`];
  for (const name of names) {
    const descriptor = createExclusively(folder, name);
    if (descriptor !== undefined) return { descriptor, name };
    removeQuietly(folder, name);
    const second = createExclusively(folder, name);
    if (second !== undefined) return { descriptor: second, name };
  }
  throw guestConflict(`${folder.name}/${TEMPORARY_NAME}`, 'is in the way', 'Remove it');
}

function createExclusively(folder: Folder, name: string): number | undefined {
  try {
    return fs.openSync(within(folder, name), NEW_FILE_FLAGS, 0o600);
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return undefined;
    throw describeProblem(folder, name, error);
  }
}

export function removeQuietly(folder: Folder, name: string): void {
  try {
    fs.unlinkSync(within(folder, name));
  } catch {
    // Renamed already, or a folder that the guest put there.
  }
}
