/** Builds complete folders out of sight and puts them in place; what fails leaves nothing. */

import { join } from 'node:path';
import type { AuthorizedKey } from '../../domain/authorized-keys.ts';
import { type DiskSource, EngineError } from '../engine.ts';
import { addKeyTo } from './authorized-keys-file.ts';
import { BASE_TEMPLATE, buildBaseDisk, makeDiskFolder, removeTree } from './disk.ts';
import type { DiskQuotas } from './disk-quotas.ts';
import { asSnapshotProblem } from './guest-conflicts.ts';
import type { Host } from './host.ts';
import { entryPath, isThere, type Layout, makeWorkFolder, putInPlace } from './layout.ts';
import type { Log } from './options.ts';

export class Provisioner {
  private readonly layout: Layout;
  private readonly host: Host;
  private readonly quotas: DiskQuotas;
  private readonly log: Log;

  constructor(layout: Layout, host: Host, quotas: DiskQuotas, log: Log) {
    this.layout = layout;
    this.host = host;
    this.quotas = quotas;
    this.log = log;
  }

  async build(place: string, fill: (folder: string) => Promise<void>): Promise<void> {
    const folder = await makeWorkFolder(this.layout, this.host.users);
    try {
      await fill(folder);
      await putInPlace(folder, place);
    } catch (error) {
      await this.discard(folder);
      throw error;
    }
  }

  /** Adds the disk of an instance to a folder that is being built, and returns its path. */
  async addDisk(folder: string, source: DiskSource, sizeGb: number): Promise<string> {
    const disk = join(folder, 'disk');
    await this.quotas.makeDisk(disk, sizeGb);
    if (source.kind === 'template') await this.fillFromTemplate(disk, source.template);
    else await this.fillFromSnapshot(disk, source.snapshotRef);
    return disk;
  }

  /** The same for a snapshot, which has no size to be held to. */
  async addEmptyDisk(folder: string): Promise<string> {
    const disk = join(folder, 'disk');
    await makeDiskFolder(disk, this.host);
    return disk;
  }

  async addFirstKeys(
    disk: string,
    source: DiskSource,
    keys: readonly AuthorizedKey[],
    now: () => Date,
  ): Promise<void> {
    try {
      for (const key of keys) await addKeyTo(disk, this.host.users.guest, key, now());
    } catch (error) {
      if (source.kind === 'snapshot') throw asSnapshotProblem(error);
      throw error;
    }
  }

  private async fillFromTemplate(disk: string, template: string): Promise<void> {
    if (template === BASE_TEMPLATE) return buildBaseDisk(disk, this.host);
    throw new EngineError('failed', `The template "${template}" is not on this host.`);
  }

  private async fillFromSnapshot(disk: string, snapshotRef: string): Promise<void> {
    const from = join(entryPath(this.layout.snapshots, snapshotRef), 'disk');
    if (await isThere(from)) return this.quotas.copy(from, disk, { paused: false });
    throw new EngineError('failed', 'The snapshot is not on this host any more.');
  }

  /** What cannot be removed now is tried again when the engine opens next. */
  async discard(folder: string): Promise<void> {
    try {
      await removeTree(folder, this.host);
    } catch (error) {
      this.log('warn', 'left-over files could not be removed', { folder, error });
    }
  }
}
