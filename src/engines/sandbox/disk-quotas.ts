/**
 * Holds instances to their disk size, with the quotas of btrfs (btrfs-quota(8)): where the disks lie on it, its quotas
 * are on, and the service is root.
 *
 * The disk of an instance is then a subvolume with a limit. Whoever is over it gets EDQUOT, root included, which is why
 * adding a key can fail there. The rest is as elsewhere: a subvolume is renamed with the folder it lies in, and rmdir(2)
 * removes an empty one, together with its limit.
 *
 * - Both kinds of quotas will do, and in both an instance pays for what it wrote and for nothing else, because copies
 *   share no data with their originals: "simple" quotas would have the original go on paying for what only a copy
 *   still has.
 * - Quotas are not switched on here. They are a property of the whole file system, and older kernels cannot mount
 *   one that ever had the simple ones.
 * - Guests cannot make subvolumes, which would begin without a limit (call-filter.ts).
 */

import { chmod, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { EngineError } from '../engine.ts';
import { runCommand } from './commands.ts';
import { copyDisk, giveToGuest, makeDiskFolder, removeTree } from './disk.ts';
import { requireSuccess } from './failures.ts';
import type { Host } from './host.ts';
import { entryPath, type Layout, listEntries, makeWorkFolder } from './layout.ts';
import type { Log } from './options.ts';

const BTRFS_MAGIC = 0x9123_683e;
/** Of the root of every subvolume and of nothing else (BTRFS_FIRST_FREE_OBJECTID). */
const SUBVOLUME_INODE = 256;
const GB = 1024 ** 3;
const TIMEOUT_MS = 60_000;
const PROBE_SIZE_GB = 1;

/** Finds out whether sizes can be enforced where the disks lie. */
export async function openDiskQuotas(layout: Layout, host: Host, log: Log): Promise<DiskQuotas> {
  const problem = await findProblem(layout, host, log);
  if (problem !== undefined)
    return new DiskQuotas(host, log, false, [
      `The disk size of instances is not enforced: ${problem}`,
    ]);
  const older = await countPlainDisks(layout);
  const notice = `${older} of the instances were made before disk sizes were enforced, and are not held to theirs. An instance that is restored from a snapshot is.`;
  return new DiskQuotas(host, log, true, older === 0 ? [] : [notice]);
}

async function findProblem(layout: Layout, host: Host, log: Log): Promise<string | undefined> {
  if ((await statfs(layout.instances)).type !== BTRFS_MAGIC)
    return 'their file system is not one whose quotas the service can use. Put the data folder on btrfs with quotas switched on.';
  if (host.users.dropTo === undefined) return 'it takes a service that is started as root.';
  if (!host.isolation) return 'it takes sandboxes, which this host does not permit.';
  if (host.tools.btrfs === undefined)
    return 'the program btrfs is missing. Install it with: apt-get install btrfs-progs';
  return tryOut(layout, host, log);
}

async function tryOut(layout: Layout, host: Host, log: Log): Promise<string | undefined> {
  const folder = await makeWorkFolder(layout, host.users);
  try {
    await new DiskQuotas(host, log, true, []).makeDisk(join(folder, 'disk'), PROBE_SIZE_GB);
    return undefined;
  } catch (error) {
    const said = error instanceof EngineError ? error.detail : String(error);
    return `quotas of the file system cannot be used (${said}). Switch them on once with: btrfs quota enable --simple <data folder>; then restart the service.`;
  } finally {
    await removeTree(folder, host);
  }
}

async function countPlainDisks({ instances }: Layout): Promise<number> {
  const refs = await listEntries(instances);
  const found = await Promise.all(
    refs.map((ref) => isSubvolume(join(entryPath(instances, ref), 'disk'))),
  );
  return found.filter((is) => !is).length;
}

async function isSubvolume(disk: string): Promise<boolean> {
  return (await stat(disk)).ino === SUBVOLUME_INODE;
}

export class DiskQuotas {
  readonly holds: boolean;
  readonly notices: readonly string[];
  readonly #host: Host;
  readonly #log: Log;

  constructor(host: Host, log: Log, holds: boolean, notices: readonly string[]) {
    this.#host = host;
    this.#log = log;
    this.holds = holds;
    this.notices = notices;
  }

  /** An empty disk of an instance, which belongs to the guest user. */
  async makeDisk(disk: string, sizeGb: number): Promise<void> {
    if (!this.holds) return makeDiskFolder(disk, this.#host);
    await this.#run(['subvolume', 'create', disk], 'The disk could not be made.');
    await chmod(disk, 0o700);
    await this.limit(disk, sizeGb);
    await giveToGuest(disk, this.#host);
  }

  /** Sets the limit of a disk again, should quotas have been off and on. Never throws. */
  async keep(disk: string, sizeGb: number): Promise<void> {
    await this.limit(disk, sizeGb).catch((error: unknown) => {
      this.#log('warn', 'a disk size could not be enforced', { disk, error });
    });
  }

  /** To be called at any time. A disk that was made without is left alone. */
  async limit(disk: string, sizeGb: number): Promise<void> {
    // Asked of anything but a subvolume, btrfs would limit the one that it lies in.
    if (!this.holds || !(await isSubvolume(disk))) return;
    const args = ['qgroup', 'limit', String(Math.round(sizeGb * GB)), disk];
    await this.#run(args, 'The disk size could not be enforced.');
  }

  /** Copies everything in one disk to an empty one; see `copyDisk`. */
  copy(from: string, to: string, { paused }: { readonly paused: boolean }): Promise<void> {
    return copyDisk(from, to, this.#host, { paused, mayShare: !this.holds });
  }

  async #run(args: readonly string[], message: string): Promise<void> {
    const { btrfs = 'btrfs' } = this.#host.tools;
    requireSuccess(await runCommand(btrfs, args, { timeoutMs: TIMEOUT_MS }), message);
  }
}
