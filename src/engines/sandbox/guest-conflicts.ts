/** Finds out what a guest put where a file or folder of its own should be. */

import * as fs from 'node:fs';
import { EngineError } from '../engine.ts';
import { guestConflict, type Obstacle, obstacleAt } from '../guest-conflicts.ts';
import { asEngineError, codeOf } from './failures.ts';

/** Errors of opening by name without following links that the guest's own doing explains. */
const GUEST_CODES = new Set([
  'ELOOP',
  'ENOTDIR',
  'EISDIR',
  'ENXIO',
  'EACCES',
  'EPERM',
  'ENOENT',
  'ENODEV',
  'ETXTBSY',
]);

/** What stands at `entry` of an open folder, as an error; an error that has other causes stays what it is. */
export function describeProblem(
  parent: { readonly descriptor: number; readonly name: string },
  entry: string,
  error: unknown,
  name = `${parent.name}/${entry}`,
): EngineError {
  if (codeOf(error) === 'EAGAIN') {
    const remedy = 'End the process that holds it';
    return guestConflict(name, 'is held by a lease of a process', remedy);
  }
  if (error !== undefined && !GUEST_CODES.has(codeOf(error) ?? '')) {
    return asEngineError(error, 'The authorized_keys file of the instance could not be reached.');
  }
  const path = `/proc/self/fd/${parent.descriptor}/${entry}`;
  const stat = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return obstacleAt(name, 'moved');
  const kind = unusualKind(stat);
  if (kind !== undefined) return obstacleAt(name, kind);
  if (stat.isDirectory() && entry === 'authorized_keys') return obstacleAt(name, 'folder');
  if (stat.isFile() && entry !== 'authorized_keys') return obstacleAt(name, 'file');
  return obstacleAt(name, 'closed');
}

function unusualKind(stat: fs.Stats): Obstacle | undefined {
  if (stat.isSymbolicLink()) return 'link';
  if (stat.isFIFO()) return 'FIFO';
  if (stat.isSocket()) return 'socket';
  if (stat.isCharacterDevice() || stat.isBlockDevice()) return 'device';
  return undefined;
}

/** The same, for a disk that was copied with its obstacles and has no instance yet in which to remove them. */
export function asSnapshotProblem(error: unknown): unknown {
  if (!(error instanceof EngineError) || error.kind !== 'guest_conflict') return error;
  const what = error.message.replace('then try again', 'then make a new snapshot of it');
  return new EngineError(
    'guest_conflict',
    `No key can be added to what the snapshot holds. ${what}`,
    { cause: error },
  );
}
