/** What the kernel says about the control groups of processes. */

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findPlaces } from '../../src/engines/sandbox/cgroup-trees.ts';

/** The folder of the group that a process is in, as the kernel says; empty: the process has ended. */
export function groupOf(pid: number, controller: 'cpu' | 'memory'): string {
  const own = attemptRead(`/proc/${pid}/cgroup`);
  if (own === '' || isEnding(pid)) return '';
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8');
  const places = findPlaces(mounts, own);
  const place =
    places.find(({ version, controllers }) => version === 1 && controllers.includes(controller)) ??
    places.find(({ version }) => version === 2);
  assert.ok(place);
  return place.ownGroup;
}

/** One that is ending has left its groups already. Field 9 of proc_pid_stat(5), PF_EXITING. */
function isEnding(pid: number): boolean {
  const stat = attemptRead(`/proc/${pid}/stat`);
  const flags = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[6];
  return flags === undefined || (Number(flags) & 4) !== 0;
}

function attemptRead(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

export const readSetting = (group: string, file: string) =>
  readFileSync(join(group, file), 'utf8').trim();

/** In cores. */
export function cpuLimit(group: string): number {
  if (existsSync(join(group, 'cpu.max'))) {
    const [quota, period] = readSetting(group, 'cpu.max').split(' ').map(Number);
    return (quota ?? 0) / (period ?? 1);
  }
  return (
    Number(readSetting(group, 'cpu.cfs_quota_us')) / Number(readSetting(group, 'cpu.cfs_period_us'))
  );
}

/** In bytes. */
export const memoryLimit = (group: string) =>
  Number(
    readSetting(
      group,
      existsSync(join(group, 'memory.max')) ? 'memory.max' : 'memory.limit_in_bytes',
    ),
  );
