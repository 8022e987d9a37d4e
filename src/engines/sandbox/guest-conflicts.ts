/** Says in a person's words what a guest put where a file or folder of its own should be. */

import * as fs from 'node:fs';
import { EngineError } from '../engine.ts';
import { asEngineError, codeOf } from './failures.ts';

/** `remedy` is what to do inside the instance. */
export function guestConflict(name: string, problem: string, remedy: string): EngineError {
  return new EngineError(
    'guest_conflict',
    `${name} in the instance ${problem}. ${remedy} inside the instance, then try again.`,
  );
}

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
  if (stat === undefined) return guestConflict(name, 'was moved or removed', 'Leave it in place');
  const kind = unusualKind(stat);
  if (kind !== undefined) return guestConflict(name, `is ${kind}`, `Remove it (rm ${name})`);
  if (stat.isDirectory() && entry === 'authorized_keys') {
    return guestConflict(name, 'is a folder', `Remove it (rm -r ${name})`);
  }
  if (stat.isFile() && entry !== 'authorized_keys') {
    return guestConflict(name, 'is a file', `Remove it (rm ${name})`);
  }
  return guestConflict(name, 'cannot be opened', `Permit it (chmod u+rwx ${name})`);
}

function unusualKind(stat: fs.Stats): string | undefined {
  if (stat.isSymbolicLink()) return 'a symbolic link';
  if (stat.isFIFO()) return 'a FIFO';
  if (stat.isSocket()) return 'a socket';
  if (stat.isCharacterDevice() || stat.isBlockDevice()) return 'a device';
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
