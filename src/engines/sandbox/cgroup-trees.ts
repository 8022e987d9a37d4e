/** Finds the control group hierarchies of this host, and where in them a service may make groups (cgroups(7)). */

import { existsSync, readFileSync, statSync } from 'node:fs';
import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { codeOf } from './failures.ts';

export type Controller = 'cpu' | 'memory';

/** `delegated`: whoever runs the service says that its group was handed over to it. */
export type LimitsSetting = 'auto' | 'off' | 'delegated';

/** A mounted hierarchy, and the group in it that this process was started in. */
export interface Place {
  readonly version: 1 | 2;
  /** What version 1 was mounted with; version 2 says it in each group. */
  readonly controllers: readonly Controller[];
  readonly mountPoint: string;
  readonly ownGroup: string;
}

/** Where groups can be made. */
export interface Tree {
  readonly version: 1 | 2;
  readonly controllers: readonly Controller[];
  readonly base: string;
}

/** Version 2 allows no processes beside limited groups, so the service itself moves down into this one. */
export const SERVICE_GROUP = 'berth-service';

const CONTROLLERS: readonly Controller[] = ['cpu', 'memory'];

const NOT_OURS =
  'the control group that the service runs in was not handed over to it; in a systemd unit: Delegate=yes and DelegateSubgroup=berth-service. If it was, say so with BERTH_SANDBOX_LIMITS=delegated';

export function readPlaces(): Place[] {
  return findPlaces(
    readFileSync('/proc/self/mountinfo', 'utf8'),
    readFileSync('/proc/self/cgroup', 'utf8'),
  );
}

/** From the texts of /proc/self/mountinfo and /proc/self/cgroup. */
export function findPlaces(mounts: string, ownGroups: string): Place[] {
  const groups = ownGroups.split('\n').flatMap((line) => {
    const [, id, names, path] = /^(\d+):([^:]*):(.*)$/.exec(line) ?? [];
    return path === undefined ? [] : [{ id, names: (names ?? '').split(','), path }];
  });
  return mounts.split('\n').flatMap((line) => {
    const [before = '', after = ''] = line.split(' - ');
    const [root = '', mountPoint = ''] = before.split(' ').slice(3, 5).map(unescapeOctal);
    const [type, , options = ''] = after.split(' ');
    if (type !== 'cgroup' && type !== 'cgroup2') return [];
    const isUnified = type === 'cgroup2';
    const controllers = CONTROLLERS.filter((name) => options.split(',').includes(name));
    if (!isUnified && controllers.length === 0) return [];
    const own = groups.find(({ id, names }) =>
      isUnified ? id === '0' : controllers.every((name) => names.includes(name)),
    );
    const below = own && pathBelow(root, own.path);
    if (below === undefined) return [];
    const ownGroup = resolve(mountPoint, `.${below}`);
    return [{ version: isUnified ? 2 : 1, controllers, mountPoint, ownGroup }];
  });
}

/** Blanks in a path are written as octal numbers. */
function unescapeOctal(word: string): string {
  return word.replace(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

/** Undefined when the group lies outside of what is mounted. */
function pathBelow(root: string, path: string): string | undefined {
  if (path.split('/').includes('..')) return undefined;
  if (root === '/' || root === path) return root === path ? '/' : path;
  return path.startsWith(`${root}/`) ? path.slice(root.length) : undefined;
}

/** A tree for each controller that there is one for; else the reason, in words that a notice can end with. */
export async function openTrees(
  places: readonly Place[],
  setting: LimitsSetting,
): Promise<{ trees: Tree[]; problems: Map<Controller, string> }> {
  const [trees, problems] = [[] as Tree[], new Map<Controller, string>()];
  for (const controller of CONTROLLERS) {
    const place =
      places.find(
        ({ version, controllers }) => version === 1 && controllers.includes(controller),
      ) ?? places.find(({ version }) => version === 2);
    const found =
      place === undefined
        ? 'no control groups for it are mounted on this host'
        : await openTree(place, controller, setting);
    if (typeof found === 'string') problems.set(controller, found);
    else trees.push(found);
  }
  return { trees: merge(trees), problems };
}

/** One hierarchy may have both. */
function merge(trees: readonly Tree[]): Tree[] {
  return [...Map.groupBy(trees, (tree) => tree.base).values()].flatMap((same) => {
    const controllers = same.flatMap((tree) => tree.controllers);
    return same[0] === undefined ? [] : [{ ...same[0], controllers }];
  });
}

async function openTree(
  place: Place,
  controller: Controller,
  setting: LimitsSetting,
): Promise<Tree | string> {
  const { version, ownGroup } = place;
  const isBelow = basename(ownGroup) === SERVICE_GROUP && version === 2;
  const base = isBelow ? dirname(ownGroup) : ownGroup;
  try {
    if (version === 2) {
      if (!isBelow && !isHandedOver(base, place, setting)) return NOT_OURS;
      const available = (await readFile(join(base, 'cgroup.controllers'), 'utf8')).trim();
      if (!available.split(' ').includes(controller))
        return `the control group ${base} does not have it; in a systemd unit: Delegate=cpu memory`;
      await enableFromInside(base, controller);
    }
    return { version, controllers: [controller], base };
  } catch (error) {
    return `the control group ${base} cannot be used (${codeOf(error) ?? String(error)}); it has to be writable, and the service alone in it`;
  }
}

/**
 * Version 2 would have a divided group empty, so it takes the consent of whoever made it. In version 1 a group below
 * another one changes nothing for that one.
 */
function isHandedOver(base: string, place: Place, setting: LimitsSetting): boolean {
  if (setting === 'delegated' || base === place.mountPoint) return true;
  const uid = process.getuid?.();
  return uid !== 0 && statSync(base).uid === uid;
}

/** The service moves out of the way first; when that does not help, it goes back. */
async function enableFromInside(base: string, controller: Controller): Promise<void> {
  // The top of all has no type, and may have processes of its own.
  const moved = existsSync(join(base, 'cgroup.type')) && (await moveDown(base));
  try {
    await enable(base, [controller]);
  } catch (error) {
    if (moved) await moveInto(base, process.pid);
    if (moved) await rmdir(join(base, SERVICE_GROUP));
    throw error;
  }
}

/**
 * Asked before anything is enabled: with processes in the group, the kernel would give it CPU as a group of threads,
 * which cannot have memory any more.
 */
async function moveDown(base: string): Promise<boolean> {
  const inside = (await readFile(join(base, 'cgroup.procs'), 'utf8')).trim().split('\n');
  const others = inside.filter((pid) => pid !== '' && pid !== String(process.pid));
  if (others.length > 0) throw new Error('other processes are in it');
  if (!inside.includes(String(process.pid))) return false;
  const below = join(base, SERVICE_GROUP);
  await mkdir(below, { recursive: true });
  await moveInto(below, process.pid);
  return true;
}

/** Version 2: the groups below this one are to have these controllers. */
export async function enable(group: string, controllers: readonly Controller[]): Promise<void> {
  const words = controllers.map((name) => `+${name}`).join(' ');
  await writeFile(join(group, 'cgroup.subtree_control'), words);
}

/** Moves a process with all its threads. One that has ended is no error. */
export async function moveInto(group: string, pid: number): Promise<void> {
  try {
    await writeFile(join(group, 'cgroup.procs'), String(pid));
  } catch (error) {
    if (codeOf(error) !== 'ESRCH') throw error;
  }
}
