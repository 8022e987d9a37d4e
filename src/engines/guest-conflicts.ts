/** Says in a person's words what a guest put where a file or folder of its own should be. */

import { EngineError, LOGIN_USER } from './engine.ts';

/** What can stand in the way. */
export type Obstacle =
  | 'link'
  | 'FIFO'
  | 'socket'
  | 'device'
  | 'folder'
  | 'file'
  | 'closed'
  | 'moved'
  | 'foreign'
  | 'large';

/** `remedy` is what to do inside the instance. */
export function guestConflict(name: string, problem: string, remedy: string): EngineError {
  return new EngineError(
    'guest_conflict',
    `${name} in the instance ${problem}. ${remedy} inside the instance, then try again.`,
  );
}

const words: Readonly<
  Record<Obstacle, readonly [problem: string, remedy: (name: string) => string]>
> = {
  link: ['is a symbolic link', (name) => `Remove it (rm ${name})`],
  FIFO: ['is a FIFO', (name) => `Remove it (rm ${name})`],
  socket: ['is a socket', (name) => `Remove it (rm ${name})`],
  device: ['is a device', (name) => `Remove it (rm ${name})`],
  folder: ['is a folder', (name) => `Remove it (rm -r ${name})`],
  file: ['is a file', (name) => `Remove it (rm ${name})`],
  closed: [
    'cannot be opened',
    (name) => `Permit it (chmod u+rwx ${name}), on a file system that can be written`,
  ],
  moved: ['was moved or removed', () => 'Leave it in place'],
  foreign: ['belongs to another user', () => `Give it to ${LOGIN_USER} or remove it`],
  large: ['is larger than 1 MiB', () => 'Make it shorter'],
};

export function obstacleAt(name: string, obstacle: Obstacle): EngineError {
  const [problem, remedy] = words[obstacle];
  return guestConflict(name, problem, remedy(name));
}

export const homeMissing = (): EngineError =>
  guestConflict('The home folder', 'is missing', `Make it (mkdir /home/${LOGIN_USER})`);

/** The way to the file led elsewhere when it was walked again. */
export const wayChanged = (): EngineError =>
  guestConflict(
    '~/.ssh',
    'was changed at the same moment, or has a mount in it',
    'Leave it in place, and unmount what is there',
  );
