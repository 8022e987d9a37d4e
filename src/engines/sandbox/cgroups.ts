/**
 * Holds instances to their CPU cores and their memory, with control groups of the kernel, where the host permits it.
 *
 * Each instance has a group `berth/<service>/<ref>` below the group that the service itself was started in, so
 * that every limit on the service goes on to hold for all that it starts. `<service>` is made from the place of
 * the disks: services of one host leave each other's groups alone. The kernel offers two kinds of hierarchies
 * (cgroup-trees.ts) with other file names (cgroup-limits.ts); in version 1, CPU and memory are usually apart.
 *
 * - Nothing is recorded here either. Limits stand in the kernel, and outlive the service as the instances do.
 * - A process starts in the group of its parent. So the outermost process of an instance is moved once, early, and
 *   then whoever was forked meanwhile, until nobody is outside. From then on nobody gets out: a guest has no
 *   control group file system, and no right to write to one.
 * - A host that forbids this is no reason not to start an instance: it is found out once, by limiting a process of
 *   our own; the capabilities and a notice say what was found.
 * - Memory that runs out inside ends the largest program in there (`memory.oom.group` stays off) and nothing else.
 */

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readdir, readFile, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineRef, MachineSpec } from '../engine.ts';
import { type Sizes, setLimits } from './cgroup-limits.ts';
import {
  type Controller,
  enable,
  type LimitsSetting,
  moveInto,
  openTrees,
  readPlaces,
  type Tree,
} from './cgroup-trees.ts';
import { codeOf } from './failures.ts';
import { firstProcessOf, type Running } from './launch.ts';
import type { Layout } from './layout.ts';
import type { Log } from './options.ts';
import { descendantsOf, isAlive, membersOf, pidNamespaceOf } from './processes.ts';

const TAKE_IN_TIMEOUT_MS = 5_000;
const DRAIN_TIMEOUT_MS = 2_000;
const POLL_INTERVAL_MS = 10;
/** No instance is called like this. */
const PROBE = '.probe';
const PROBE_SIZES: Sizes = { cpuCores: 1, memoryGb: 1 };

/** Finds out what this host permits, and removes nothing yet. */
export async function openLimits(
  setting: LimitsSetting,
  layout: Layout,
  log: Log,
): Promise<Limits> {
  if (setting === 'off') {
    const problem = 'the setting asks for it';
    return new Limits(
      [],
      new Map([
        ['cpu', problem],
        ['memory', problem],
      ]),
      layout,
      log,
    );
  }
  const { trees, problems } = await openTrees(readPlaces(), setting);
  const usable: Tree[] = [];
  for (const tree of trees) {
    const problem = await new Limits([tree], new Map(), layout, log).probe();
    if (problem === undefined) usable.push(tree);
    else for (const controller of tree.controllers) problems.set(controller, problem);
  }
  return new Limits(usable, problems, layout, log);
}

export class Limits {
  readonly notices: readonly string[];
  readonly #trees: readonly Tree[];
  readonly #service: string;
  readonly #log: Log;

  constructor(
    trees: readonly Tree[],
    problems: ReadonlyMap<Controller, string>,
    { instances }: Layout,
    log: Log,
  ) {
    this.#trees = trees;
    this.#service = createHash('sha256').update(instances).digest('hex').slice(0, 16);
    this.#log = log;
    const names = { cpu: 'The CPU', memory: 'The memory' };
    this.notices = [...problems].map(
      ([controller, problem]) => `${names[controller]} of instances is not limited: ${problem}.`,
    );
  }

  holds(controller: Controller): boolean {
    return this.#trees.some(({ controllers }) => controllers.includes(controller));
  }

  /** Limits a process of our own; undefined when that went well. */
  async probe(): Promise<string | undefined> {
    const child = spawn('/bin/sleep', ['60'], { cwd: '/', env: {}, stdio: 'ignore' });
    try {
      await once(child, 'spawn');
      for (const { tree, group } of await this.#make(PROBE)) {
        await setLimits(group, tree, PROBE_SIZES);
        await moveInto(group, child.pid ?? 0);
      }
      return undefined;
    } catch (error) {
      return `a group could not be made or used (${codeOf(error) ?? String(error)})`;
    } finally {
      const ended = child.exitCode === null && child.pid ? once(child, 'exit') : undefined;
      child.kill('SIGKILL');
      await ended;
      await this.remove(PROBE);
      await this.close();
    }
  }

  /** Limits an instance that is being started, and takes in what there is of it. Never throws. */
  async hold(running: Running, machine: MachineSpec): Promise<void> {
    await this.#attempt(running.ref, async () => {
      for (const { tree, group } of await this.#make(running.ref))
        await setLimits(group, tree, machine);
    });
    await this.takeIn(running);
  }

  /** Returns when no process of the instance is outside its group, or with a warning. Never throws. */
  async takeIn(running: Running): Promise<void> {
    await this.#attempt(running.ref, async () => {
      for (const { group } of await this.#make(running.ref)) await takeAllIn(group, running);
    });
  }

  /**
   * Changes the limits of a running instance.
   * @returns what takes the change back
   * @throws EngineError `guest_conflict` when its programs hold more memory than they are to have
   */
  async change(running: Running, machine: MachineSpec): Promise<() => Promise<void>> {
    const undo: (() => Promise<void>)[] = [];
    const undoAll = async () => {
      for (const step of undo.toReversed()) await step();
    };
    try {
      for (const { tree, group } of await this.#make(running.ref))
        undo.push(await setLimits(group, tree, machine));
    } catch (error) {
      await undoAll();
      throw error;
    }
    // Should the group not have been there.
    await this.takeIn(running);
    return undoAll;
  }

  /** To be called when the processes have ended. Never throws: what stays is removed when the engine opens next. */
  async remove(ref: EngineRef): Promise<void> {
    for (const tree of this.#trees) {
      const group = join(this.#folderOf(tree), ref);
      const isGone = await removeDrained(group);
      if (!isGone) this.#log('warn', 'a control group could not be removed', { group });
    }
  }

  /** Removes what a crash left of instances that do not run. */
  async removeAllBut(refs: ReadonlySet<EngineRef>): Promise<void> {
    for (const tree of this.#trees) {
      const entries = await readdir(this.#folderOf(tree), { withFileTypes: true }).catch(() => []);
      const left = entries.filter((entry) => entry.isDirectory() && !refs.has(entry.name));
      for (const { name } of left) await this.remove(name);
    }
  }

  /** Leaves no empty folders; those with instances in them stay. */
  async close(): Promise<void> {
    for (const tree of this.#trees) {
      await rmdir(this.#folderOf(tree)).catch(() => undefined);
      await rmdir(join(tree.base, 'berth')).catch(() => undefined);
    }
  }

  #folderOf({ base }: Tree): string {
    return join(base, 'berth', this.#service);
  }

  async #make(ref: EngineRef): Promise<{ tree: Tree; group: string }[]> {
    const made = this.#trees.map((tree) => ({ tree, group: join(this.#folderOf(tree), ref) }));
    for (const { tree, group } of made) {
      const folder = this.#folderOf(tree);
      await mkdir(folder, { recursive: true });
      if (tree.version === 2) {
        for (const parent of [join(tree.base, 'berth'), folder])
          await enable(parent, tree.controllers);
      }
      await mkdir(group, { recursive: true });
    }
    return made;
  }

  async #attempt(ref: EngineRef, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#log('warn', 'an instance could not be limited', { ref, error });
    }
  }
}

/** Processes fork while they are counted: it is done when a look at all of them finds nobody outside. */
async function takeAllIn(group: string, running: Running): Promise<void> {
  const deadline = performance.now() + TAKE_IN_TIMEOUT_MS;
  for (;;) {
    const family = familyOf(running);
    const inside = new Set((await readFile(join(group, 'cgroup.procs'), 'utf8')).split('\n'));
    const outside = family.filter((pid) => !inside.has(String(pid)));
    if (outside.every((pid) => !familyOf(running).includes(pid))) return;
    if (performance.now() > deadline) throw new Error('processes multiply faster than they move');
    for (const pid of outside) await moveInto(group, pid);
  }
}

function familyOf(running: Running): number[] {
  const { launcher } = running;
  if (!isAlive(launcher)) return [];
  const first = firstProcessOf(running);
  const namespace = first && pidNamespaceOf(first.pid);
  const isOwn = namespace !== undefined && namespace !== pidNamespaceOf('self');
  const family = [
    ...descendantsOf(launcher.pid),
    // Whose parent ended while the table was read.
    ...(isOwn ? membersOf(namespace) : []),
  ];
  return [...new Set([launcher.pid, ...family.map(({ pid }) => pid)])];
}

async function removeDrained(group: string): Promise<boolean> {
  const deadline = performance.now() + DRAIN_TIMEOUT_MS;
  for (;;) {
    try {
      await rmdir(group);
      return true;
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return true;
      if (codeOf(error) !== 'EBUSY' || performance.now() > deadline) return false;
    }
    await sleep(POLL_INTERVAL_MS);
  }
}
