/**
 * Disk limits of a btrfs pool, on the host that Incus runs on.
 *
 * As soon as one disk has a size, Incus turns on the quotas that btrfs had first, and with them a snapshot takes 50
 * times as long. Simple quotas (Linux 6.7, btrfs-progs 6.6.3) do not have that cost, and Incus uses them as they are; but
 * somebody has to turn them on before the first disk is made.
 *
 * REST says nothing about it, so what was found stands in the pool's own configuration.
 */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import { basename } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Key of the pool's configuration. `none`: disks are not to be given a size, or they become slow. */
export const quotasKey = 'user.berth.quotas';

/** `unknown`: not this host, or not btrfs. */
export type Quotas = 'simple' | 'full' | 'none' | 'unknown';

/** What the kernel has turned on for the file system that is mounted there. */
export function quotasOf(mountPoint: string): Quotas {
  const device = deviceOf(mountPoint);
  if (device === undefined) return 'unknown';
  for (const id of list('/sys/fs/btrfs')) {
    if (!list(`/sys/fs/btrfs/${id}/devices`).includes(device)) continue;
    const isEnabled = read(`/sys/fs/btrfs/${id}/qgroups/enabled`) === '1';
    if (!isEnabled) return 'none';
    return read(`/sys/fs/btrfs/${id}/qgroups/mode`) === 'squota' ? 'simple' : 'full';
  }
  return 'unknown';
}

/** The kernel's name of the device, as of now; undefined when nothing of btrfs is mounted there. */
function deviceOf(mountPoint: string): string | undefined {
  const lines = read('/proc/self/mountinfo').split('\n');
  for (const line of lines.toReversed()) {
    const [before = '', after = ''] = line.split(' - ');
    const [type, source = ''] = after.split(' ');
    if (before.split(' ')[4] !== mountPoint || type !== 'btrfs') continue;
    return basename(real(source));
  }
  return undefined;
}

/** Undefined when it is done; else why it cannot be. */
export async function enableSimpleQuotas(mountPoint: string): Promise<string | undefined> {
  try {
    await run('btrfs', ['quota', 'enable', '--simple', mountPoint], { timeout: 30_000 });
    return undefined;
  } catch (error) {
    const said = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : '';
    return (said === '' ? String(error) : said).split('\n')[0];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
