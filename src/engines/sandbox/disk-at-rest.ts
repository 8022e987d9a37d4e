/** Copies the disk of an instance while nothing in there writes to it. */

import { EngineError } from '../engine.ts';
import type { DiskQuotas } from './disk-quotas.ts';
import type { Host } from './host.ts';
import { firstProcessOf, type Running } from './launch.ts';
import { whilePaused } from './pause.ts';

/** `running` is undefined when the instance is stopped. */
export async function copyAtRest(
  from: string,
  to: string,
  running: Running | undefined,
  { host, quotas }: { readonly host: Host; readonly quotas: DiskQuotas },
): Promise<void> {
  const copy = (paused: boolean) => quotas.copy(from, to, { paused });
  if (running === undefined || running.unconfined) return copy(false);
  const first = firstProcessOf(running);
  if (first === undefined) throw new EngineError('not_running', 'The instance is just stopping.');
  await whilePaused(first.pid, host.users.dropTo, () => copy(true));
}
