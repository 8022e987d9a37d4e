/** Stops instances and deletes them. */

import type { EngineRef } from '../engine.ts';
import { removeOurs, stopAtOnce } from './creating.ts';
import { isIncusError } from './incus-error.ts';
import { stateChange } from './instance-config.ts';
import { at, find, type InstanceObject, isRunning, placeOf } from './objects.ts';
import { type Parts, settle, statePath } from './parts.ts';

/** A guest that has not ended by then is ended. */
const graceSeconds = { container: 10, 'virtual-machine': 30 };
const spareMs = 5_000;

export async function stopInstance(parts: Parts, ref: EngineRef): Promise<void> {
  const place = await parts.places.instance(ref);
  const object = place && (await find(parts.client, place));
  if (object && object.status !== 'Stopped') await stopGently(parts, object);
  await parts.forwards.withdraw(ref);
}

async function stopGently(parts: Parts, object: InstanceObject): Promise<void> {
  const place = placeOf(object);
  if (!isRunning(object)) return stopAtOnce(parts, place);
  const timeoutSeconds = graceSeconds[object.type];
  const options = at(place, { operationMs: timeoutSeconds * 1000 + spareMs });
  const body = stateChange('stop', { timeoutSeconds });
  try {
    await settle(
      parts,
      place,
      () => parts.client.change('PUT', statePath(place), body, options),
      (now) => now === undefined || now.status === 'Stopped',
    );
  } catch (error) {
    if (!isIncusError(error, 'refused', 'timeout', 'busy')) throw error;
    await stopAtOnce(parts, place);
  }
}

export async function deleteInstance(parts: Parts, ref: EngineRef): Promise<void> {
  const place = await parts.places.instance(ref);
  const object = place && (await find(parts.client, place));
  if (object) await removeOurs(parts, object);
  await parts.forwards.withdraw(ref);
}
