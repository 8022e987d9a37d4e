/**
 * What Incus cannot mend by itself, and its host can. Only where Incus is on this machine and we are root; elsewhere the
 * error says what the operator is to do.
 */

import { execFile } from 'node:child_process';
import { rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { EngineError } from '../engine.ts';
import { stateFolder } from './endpoint.ts';
import { isIncusError } from './incus-error.ts';
import { diskSizeOf } from './instance-config.ts';
import type { InstanceObject } from './objects.ts';
import type { IncusOptions } from './options.ts';

type Where = Pick<IncusOptions, 'endpoints' | 'pool'>;
type Disk = Pick<InstanceObject, 'name' | 'project' | 'type' | 'devices'>;

const run = promisify(execFile);
const commandMs = 10_000;
/** From the making of a port until the guest has its end of it. */
const takenWithinMs = 2_000;
const folders = { container: 'containers', 'virtual-machine': 'virtual-machines' };

/** Below the folder of Incus's state. */
function pathIn({ pool }: Where, { name, project, type }: Disk): string {
  const volume = project === 'default' ? name : `${project}_${name}`;
  return join('storage-pools', pool, folders[type], volume);
}

/** It names the disk itself, and not something that the guest has in it. */
export const isNoDisk = (where: Where, disk: Disk, error: unknown): boolean =>
  isIncusError(error, 'refused') &&
  /not a btrfs subvolume/i.test(error.message) &&
  ['"', ':'].some((end) => error.message.includes(`${pathIn(where, disk)}${end}`));

/** Incus was killed while it made or removed the disk: whatever is not an empty folder stays. */
export async function removeEmptyFolder(where: Where, disk: Disk, cause: unknown): Promise<void> {
  const path = pathIn(where, disk);
  try {
    const state = stateFolder(where);
    if (state === undefined) throw new Error('Incus is on another machine');
    await rmdir(join(state, path));
  } catch (error) {
    throw new EngineError(
      'failed',
      `Incus cannot remove the instance: in its place there is an empty folder. The operator removes it on the host, in the folder of Incus's state: rmdir ${path}`,
      { cause, detail: String(error) },
    );
  }
}

/**
 * Incus was killed while it made a guest's port on the bridge: both ends are here, and nobody will ever take them. True
 * when it is removed. One that somebody's start has made just now gets its guest in a moment, and is let be.
 */
export async function removeLeftPort(where: Where, port: string): Promise<boolean> {
  if (stateFolder(where) === undefined) return false;
  const ip = (...words: string[]) => run('ip', words, { timeout: commandMs });
  const look = async () => {
    const { stdout } = await ip('-json', 'link', 'show', 'dev', port);
    const [link] = JSON.parse(stdout) as { ifindex: number; link_netnsid?: number }[];
    // With this, the other end is in a guest.
    return link?.link_netnsid === undefined ? link?.ifindex : undefined;
  };
  try {
    const first = await look();
    await sleep(takenWithinMs);
    if (first === undefined || (await look()) !== first) return false;
    await ip('link', 'delete', 'dev', port);
    return true;
  } catch {
    // It can have another name.
    return false;
  }
}

/**
 * Runs a change of an instance whose disk may be full. Incus writes into that disk itself, so that with a guest that
 * filled it an instance could neither start nor get a larger one. Its limit is lifted for that moment, by way of the
 * pool: btrfs refuses by way of the disk.
 */
export async function withRoom<T>(
  where: Where,
  disk: Disk,
  change: () => Promise<T>,
  after: 'limit again' | 'has a new limit',
): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isFull(error)) throw error;
    const limit = await limitOf(where, disk);
    if (limit === undefined) throw full(where, disk, error);
    await limit('none');
    try {
      const result = await change();
      if (after === 'limit again') await limit(bytesOf(disk));
      return result;
    } catch (second) {
      await limit(bytesOf(disk));
      throw second;
    }
  }
}

/** Said in two ways, depending on who met it first. */
const isFull = (error: unknown): error is Error =>
  isIncusError(error, 'no_space') ||
  (isIncusError(error, 'refused') && /saving config file for the container/.test(error.message));

const bytesOf = ({ devices }: Disk): string => {
  const sizeGb = diskSizeOf(devices);
  return sizeGb === undefined ? 'none' : String(sizeGb * 1000 ** 3);
};

/** Sets the limit of the disk; undefined where we cannot. */
async function limitOf(
  where: Where,
  disk: Disk,
): Promise<((bytes: string) => Promise<void>) | undefined> {
  const state = stateFolder(where);
  if (state === undefined) return undefined;
  const btrfs = (...words: string[]) => run('btrfs', words, { timeout: commandMs });
  try {
    const { stdout } = await btrfs('inspect-internal', 'rootid', join(state, pathIn(where, disk)));
    const pool = join(state, 'storage-pools', where.pool);
    return async (bytes) => {
      await btrfs('qgroup', 'limit', bytes, `0/${stdout.trim()}`, pool);
    };
  } catch {
    return undefined;
  }
}

function full(where: Where, disk: Disk, cause: Error): EngineError {
  return new EngineError(
    'no_space',
    `The disk of the instance, or the pool it is in, is so full that Incus cannot change the instance. The operator makes room in the pool, or lifts the limit of the disk on the host, in the folder of Incus's state (btrfs qgroup limit none ${pathIn(where, disk)}); then give the instance a larger disk.`,
    { cause, detail: cause.message },
  );
}
