/** A btrfs file system of a test's own, in a file; takes root and the programs of btrfs-progs. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runWell } from './run.ts';

export type QuotaKind = 'simple' | 'full' | 'none';

const SIZE_BYTES = 4 * 1024 ** 3;

/**
 * Waits at the end of a pipe, so that nothing stays mounted however the test ends. The loop device goes with the mount,
 * and what still runs in there would keep both.
 */
const REMOVAL = `
read -r line
for pid in $(grep -lsF "$1/" /proc/[0-9]*/cmdline | cut -d / -f 3); do
  kill -9 "$pid"
done
umount -l "$1"
rm -rf "$2"
`;

export class Btrfs {
  /** Where it is mounted. */
  readonly folder: string;
  readonly #guard: ReturnType<typeof spawn>;

  private constructor(folder: string, place: string) {
    this.folder = folder;
    this.#guard = spawn('sh', ['-c', REMOVAL, 'guard', folder, place], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    this.#guard.unref();
  }

  static async make(quotas: QuotaKind): Promise<Btrfs> {
    const place = mkdtempSync(join(tmpdir(), 'btrfs-test-'));
    chmodSync(place, 0o711);
    const [image, folder] = [join(place, 'image'), join(place, 'mounted')];
    writeFileSync(image, '');
    truncateSync(image, SIZE_BYTES);
    mkdirSync(folder);
    const made = new Btrfs(folder, place);
    try {
      await runWell('mkfs.btrfs', ['--quiet', image]);
      await runWell('mount', ['-o', 'loop,commit=1', image, folder]);
      chmodSync(folder, 0o711);
      await made.switchOn(quotas);
      return made;
    } catch (error) {
      await made.remove();
      throw error;
    }
  }

  async switchOn(quotas: QuotaKind): Promise<void> {
    const simple = quotas === 'simple' ? ['--simple'] : [];
    if (quotas !== 'none') await runWell('btrfs', ['quota', 'enable', ...simple, this.folder]);
  }

  /** A folder for the data of an engine; the file system itself stays unlimited. */
  dataFolder(): string {
    const path = join(this.folder, 'data');
    mkdirSync(path, { recursive: true, mode: 0o711 });
    return path;
  }

  async subvolumes(): Promise<string[]> {
    const text = await runWell('btrfs', ['subvolume', 'list', this.folder]);
    return text.trim() === '' ? [] : text.trim().split('\n');
  }

  /** Limits in bytes of the subvolumes that have one; without those that the kernel is clearing away. */
  async limits(): Promise<number[]> {
    const living = (await this.quotaGroups()).filter(([, , , , path]) => !path?.startsWith('<'));
    return living.flatMap(([, , , limit]) => (limit === 'none' ? [] : [Number(limit)]));
  }

  /** The rows of `btrfs qgroup show`. */
  async quotaGroups(): Promise<string[][]> {
    const text = await runWell('btrfs', ['qgroup', 'show', '-r', '--raw', this.folder]);
    const rows = text.split('\n').map((line) => line.trim().split(/\s+/));
    return rows.filter(([id]) => /^\d+\/\d+$/.test(id ?? ''));
  }

  async remove(): Promise<void> {
    this.#guard.ref();
    const end = once(this.#guard, 'exit');
    this.#guard.stdin?.end();
    await end;
    if (existsSync(this.folder)) throw new Error(`${this.folder} could not be removed.`);
  }
}

/** Why no such file system can be made here; false where it can. */
export async function reasonAgainstBtrfs(): Promise<string | false> {
  if (process.getuid?.() !== 0) return 'SKIPPED: mounting a btrfs file system takes root';
  try {
    const made = await Btrfs.make('simple');
    await made.remove();
    return false;
  } catch (error) {
    return `SKIPPED: no btrfs file system can be made here: ${error}`;
  }
}
