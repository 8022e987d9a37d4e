/** What went wrong with a guest's keys, as the errors that an engine may throw. */

import { EngineError, LOGIN_USER } from '../engine.ts';
import {
  guestConflict,
  homeMissing,
  type Obstacle,
  obstacleAt,
  wayChanged,
} from '../guest-conflicts.ts';
import { asEngineError } from './failures.ts';
import { status } from './guest-key-scripts.ts';
import { IncusError, isIncusError } from './incus-error.ts';
import { notThere } from './objects.ts';

const failedWords = 'The authorized_keys file of the instance could not be reached.';

/** The second digit of a status. */
const obstacles: readonly Obstacle[] = [
  'closed',
  'link',
  'FIFO',
  'socket',
  'device',
  'folder',
  'file',
  'moved',
  'foreign',
  'large',
];
/** The first one. */
const places: ReadonlyMap<number, string> = new Map([
  [6, '~'],
  [7, '~/.ssh'],
  [8, '~/.ssh/authorized_keys'],
]);

/** What `timeout` ends with when it had to end the program. */
const ended = [124, 137, 143];
const notFound = [status.toolMissing, 126, 127];

/** Ends of a change after which it may be in the file all the same. */
const landings: readonly number[] = [status.landedUnflushed, status.moved, ...ended];
export const mayHaveLanded = (code: number): boolean => landings.includes(code);

/** For a status that is no success. */
export function statusError(code: number): EngineError {
  const detail = `The program in the guest ended with ${code}.`;
  const place = places.get(Math.trunc(code / 10));
  const obstacle = obstacles[code % 10];
  if (place !== undefined && obstacle !== undefined) return obstacleError(place, obstacle);
  if (code === status.locked)
    return guestConflict('~/.ssh', 'is locked by a process', 'End the process that holds the lock');
  if (code === status.stranger)
    return guestConflict(
      `The user ${LOGIN_USER}`,
      `is not who has the id 1000 and the home /home/${LOGIN_USER}`,
      'Put that right in /etc/passwd',
    );
  if (code === status.moved || code === status.notRenamed) return wayChanged();
  if (code === status.noSpace)
    return asEngineError(new IncusError('no_space', detail), failedWords);
  if (notFound.includes(code)) return toolMissing();
  if (code === status.late || ended.includes(code)) {
    const message = 'The instance did not get to it in time. Try again in a minute.';
    return new EngineError('timeout', message, { detail });
  }
  return new EngineError('failed', failedWords, { detail });
}

export function obstacleError(place: string, obstacle: Obstacle): EngineError {
  if (place === '~' && obstacle === 'moved') return homeMissing();
  return obstacleAt(place, obstacle);
}

const toolMissing = (): EngineError =>
  guestConflict(
    'A program that is needed',
    'is missing (one of sh, timeout, flock, stat, sync, sha256sum)',
    'Install coreutils and util-linux',
  );

/** For anything that was thrown on the way. */
export function keyError(error: unknown): EngineError {
  if (isIncusError(error, 'not_found')) return notThere();
  if (isIncusError(error, 'not_running')) {
    const message = 'The instance is just being started or stopped. Try again in a minute.';
    return new EngineError('not_running', message, { cause: error });
  }
  if (isPaused(error)) {
    const message = 'The instance is paused. Try again when it runs on.';
    return new EngineError('not_running', message, { cause: error });
  }
  if (isIncusError(error, 'refused') && /^Command not (?:found|executable)/.test(error.message))
    return toolMissing();
  return asEngineError(error, failedWords);
}

const isPaused = (error: unknown): error is IncusError =>
  isIncusError(error, 'refused') && error.message === 'Instance is frozen';

/** Incus says this of a program now and then when the host is very busy. */
const isUnstarted = (error: unknown): boolean =>
  isIncusError(error, 'refused') && error.message.startsWith('Failed to retrieve PID');

/** Nobody knows whether the program ran. */
export const mayHaveRun = (error: unknown): boolean =>
  isUnstarted(error) || isIncusError(error, 'unknown_outcome');

/** The server is away or starts, or a snapshot holds the guest: soon over. The programs may run twice. */
export const mayPass = (error: unknown): boolean =>
  isPaused(error) ||
  isUnstarted(error) ||
  isIncusError(error, 'unreachable', 'unknown_outcome', 'host_down', 'not_running');
