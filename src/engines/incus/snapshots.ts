/**
 * A snapshot is a stopped instance that holds a copy of the disk, so that it outlives its source. With copy-on-write
 * storage the copy is of one moment, and takes none of the source's time; a storage without it freezes the source
 * meanwhile. It counts only when the copy is marked as done: what a crash leaves has no mark, and is made anew.
 *
 * Keys are not kept out meanwhile: a line is in a guest's file by a rename after a sync, wholly or not at all.
 *
 * What was written in a container a moment ago is in the memory of the host, and so in the copy. A virtual machine has
 * a memory of its own: it is asked to flush that first.
 */

import type { EngineRef } from '../engine.ts';
import { removeInstance, removeOurs } from './creating.ts';
import { copyDone, holderBody, isReady, stateChange } from './instance-config.ts';
import { instancePath, type Place, snapshotName } from './names.ts';
import { at, copyMs, find, type InstanceObject, isRunning, notThere, placeOf } from './objects.ts';
import { type Parts, settle, statePath } from './parts.ts';

const flushMs = 30_000;

export async function createSnapshot(
  parts: Parts,
  ref: EngineRef,
  snapshotRef: EngineRef,
): Promise<void> {
  const { client, overview, places } = parts;
  const place = await places.instance(ref);
  if (!place) throw notThere();
  const holder: Place = { name: snapshotName(snapshotRef), project: place.project };
  const [object, earlier] = await Promise.all([find(client, place), find(client, holder)]);
  if (!object) throw notThere();
  if (earlier && isReady(earlier.config)) return;
  if (earlier) await removeInstance(parts, earlier);
  places.note(holder);
  await flush(parts, object);
  try {
    const target = overview.last.clustered ? object.location : undefined;
    const options = at(holder, { target, operationMs: copyMs });
    await client.change('POST', '/1.0/instances', holderBody(snapshotRef, object), options);
  } catch (error) {
    await thaw(parts, object).catch(() => undefined);
    throw error;
  }
  const markDone = () => client.change('PATCH', instancePath(holder), copyDone, at(holder));
  await settle(parts, holder, markDone, (now) => now !== undefined && isReady(now.config));
}

/** Without it, the snapshot is what the disk would be after a power cut: still worth having. */
async function flush({ exec, options }: Parts, object: InstanceObject): Promise<void> {
  if (object.type !== 'virtual-machine' || !isRunning(object)) return;
  const command = (leftMs: number) => {
    const seconds = Math.max(1, Math.floor(leftMs / 1000) - 1);
    return ['/usr/bin/timeout', '-k', '1', String(seconds), '/bin/sync'];
  };
  const giveUpAt = performance.now() + flushMs;
  try {
    const status = await exec.run(placeOf(object), giveUpAt, command);
    if (status !== 0) throw new Error(`sync ended with ${status}`);
  } catch (error) {
    const fields = { instance: object.name, err: error };
    options.log('warn', 'a virtual machine was not flushed before its snapshot', fields);
  }
}

/** Killed while it copies, Incus leaves a source frozen that it had to freeze. */
async function thaw(parts: Parts, object: InstanceObject): Promise<void> {
  const place = placeOf(object);
  if (object.status !== 'Running' || (await find(parts.client, place))?.status !== 'Frozen') return;
  await parts.client.change('PUT', statePath(place), stateChange('unfreeze'), at(place));
}

export async function deleteSnapshot(parts: Parts, snapshotRef: EngineRef): Promise<void> {
  const place = await parts.places.snapshot(snapshotRef);
  const object = place && (await find(parts.client, place));
  if (object) await removeOurs(parts, object);
}
