/** Copies the disk of an instance while nothing in there writes to it. */

import { EngineError } from '../engine.ts';
import { copyDisk } from './disk.ts';
import type { Host } from './host.ts';
import { firstProcessOf, type Running } from './launch.ts';
import { whilePaused } from './pause.ts';

/** `running` is undefined when the instance is stopped. */
export async function copyAtRest(
  from: string,
  to: string,
  running: Running | undefined,
  host: Host,
): Promise<void> {
  if (running === undefined || running.unconfined) return copyDisk(from, to, host);
  const first = firstProcessOf(running);
  if (first === undefined) throw new EngineError('not_running', 'The instance is just stopping.');
  await whilePaused(first.pid, host.users.dropTo, () => copyDisk(from, to, host, { paused: true }));
}
