/** The files of one control group in which its limits stand. */

import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { EngineError, type MachineSpec } from '../engine.ts';
import type { Tree } from './cgroup-trees.ts';
import { codeOf } from './failures.ts';

export type Sizes = Pick<MachineSpec, 'cpuCores' | 'memoryGb'>;

interface Setting {
  readonly file: string;
  readonly value: string;
}

const GB = 1024 ** 3;
const PERIOD_US = 100_000;
/** Left free below a shrunken limit, so that what goes on meanwhile does not end in it. */
const SHARE_KEPT_FREE = 1 / 16;

/**
 * Writes what differs, so that the same limits can be set at any time.
 * @returns what puts back the limits that were there before
 * @throws EngineError `guest_conflict` when the programs hold more memory than they are to have; nothing is changed
 */
export async function setLimits(
  group: string,
  tree: Tree,
  sizes: Sizes,
): Promise<() => Promise<void>> {
  const memory = tree.controllers.includes('memory');
  if (memory) await requireRoom(group, tree, sizes.memoryGb * GB);
  const settings = [
    // First, because it alone may be refused.
    ...(memory ? await memorySettings(group, tree, sizes.memoryGb * GB) : []),
    ...(tree.controllers.includes('cpu') ? cpuSettings(tree, sizes.cpuCores) : []),
  ];
  const done: Setting[] = [];
  const undo = () => writeAll(group, done.toReversed());
  try {
    for (const { file, value } of settings) {
      const before = await read(group, file);
      if (before === value) continue;
      await writeFile(join(group, file), value);
      done.push({ file, value: before });
    }
  } catch (error) {
    await undo();
    throw codeOf(error) === 'EBUSY' ? tooMuchInUse(sizes.memoryGb * GB) : error;
  }
  return undo;
}

async function writeAll(group: string, settings: readonly Setting[]): Promise<void> {
  for (const { file, value } of settings) await writeFile(join(group, file), value);
}

async function read(group: string, file: string): Promise<string> {
  return (await readFile(join(group, file), 'utf8')).trim();
}

function cpuSettings({ version }: Tree, cores: number): Setting[] {
  const quota = cores * PERIOD_US;
  if (version === 2) return [{ file: 'cpu.max', value: `${quota} ${PERIOD_US}` }];
  return [
    { file: 'cpu.cfs_period_us', value: String(PERIOD_US) },
    { file: 'cpu.cfs_quota_us', value: String(quota) },
  ];
}

async function memorySettings(group: string, { version }: Tree, bytes: number): Promise<Setting[]> {
  const value = String(bytes);
  const known = (settings: Setting[]) =>
    settings.filter(({ file }) => existsSync(join(group, file)));
  if (version === 2)
    return known([
      { file: 'memory.swap.max', value: '0' },
      { file: 'memory.max', value },
    ]);
  // Memory and swap together must never be less than memory alone.
  const shrinking = known([
    { file: 'memory.limit_in_bytes', value },
    { file: 'memory.memsw.limit_in_bytes', value },
  ]);
  const grows = bytes > (await memoryLimit(group, 1));
  return grows ? shrinking.toReversed() : shrinking;
}

async function memoryLimit(group: string, version: 1 | 2): Promise<number> {
  const text = await read(group, version === 2 ? 'memory.max' : 'memory.limit_in_bytes');
  return text === 'max' ? Number.POSITIVE_INFINITY : Number(text);
}

/** Asked before: version 2 would end programs until the rest fits, and version 1 tries for long. */
async function requireRoom(group: string, { version }: Tree, bytes: number): Promise<void> {
  if (bytes >= (await memoryLimit(group, version))) return;
  const used = await read(group, version === 2 ? 'memory.current' : 'memory.usage_in_bytes');
  const lines = (await read(group, 'memory.stat')).split('\n').map((line) => line.split(' '));
  const given =
    version === 2
      ? ['active_file', 'inactive_file', 'slab_reclaimable']
      : ['total_active_file', 'total_inactive_file'];
  const reclaimable = lines
    .filter(([name]) => given.includes(name ?? ''))
    .reduce((sum, [, value]) => sum + Number(value), 0);
  if (Number(used) - reclaimable > bytes * (1 - SHARE_KEPT_FREE)) throw tooMuchInUse(bytes);
}

function tooMuchInUse(bytes: number): EngineError {
  return new EngineError(
    'guest_conflict',
    `The programs in the instance hold too much memory for a limit of ${bytes / GB} GB. End some of them inside the instance, or choose more memory, then try again.`,
  );
}
