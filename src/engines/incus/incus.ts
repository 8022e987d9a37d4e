/**
 * The Incus engine: an instance is a system container or a virtual machine with a copy-on-write disk, limits of its
 * own and a network of its own, on one host or on many.
 *
 * What carries the rest:
 *
 * - Incus's answers are not believed. Operations are forgotten after seconds and do not survive a restart, and a crash
 *   leaves half-made things under the names we want. So whatever is complete is marked by us (`user.berth.ready`),
 *   what is not is made anew, and after a doubtful answer the object itself is looked at.
 * - Everything has a name that is made once and never used again (names.ts), so nothing is ever mistaken.
 * - A guest's keys are written by a command that runs in it as its own user (guest-keys.ts), never through Incus's
 *   file API, which follows the guest's links as root.
 * - Ports are published by the bridge (forwards.ts), which knows no owners: one writer, and what is published is
 *   marked with the ref that it belongs to.
 *
 * Changes of one instance run one after the other, but for its keys, which the guest itself keeps apart.
 */

import type { AddKeyOutcome, AuthorizedKey, KeyMatch } from '../../domain/authorized-keys.ts';
import { KeyedLock } from '../../domain/keyed-lock.ts';
import type {
  DiskSource,
  Endpoint,
  Engine,
  EngineCapabilities,
  EngineHealth,
  EngineInventory,
  EngineRef,
  InstanceFacts,
  MachineSpec,
} from '../engine.ts';
import { checkIncus } from './check.ts';
import { configureInstance } from './configuring.ts';
import { createInstance } from './creating.ts';
import { failingAs } from './failures.ts';
import { inTime } from './in-time.ts';
import { Inventory } from './inventory.ts';
import type { Place } from './names.ts';
import { notThere } from './objects.ts';
import type { IncusOptions } from './options.ts';
import { capabilitiesOf } from './overview.ts';
import { openParts, type Parts } from './parts.ts';
import { createSnapshot, deleteSnapshot } from './snapshots.ts';
import { startInstance } from './starting.ts';
import { deleteInstance, stopInstance } from './stopping.ts';

export type { IncusOptions } from './options.ts';

/** Without a quorum every look waits: the service starts, and says so. */
const checkMs = 4_500;

/** An Incus that does not answer yet is no reason not to open: `health` says so, and it may come back. */
export async function createIncusEngine(options: IncusOptions): Promise<IncusEngine> {
  const engine = new IncusEngine(options);
  await engine.look();
  return engine;
}

export class IncusEngine implements Engine {
  readonly name = 'incus';
  private readonly options: IncusOptions;
  private readonly parts: Parts;
  private readonly everything: Inventory;
  private readonly work = new KeyedLock();

  constructor(options: IncusOptions) {
    this.options = options;
    this.parts = openParts(options);
    this.everything = new Inventory(this.parts);
  }

  get capabilities(): EngineCapabilities {
    return capabilitiesOf(this.parts.overview.last);
  }

  /** The first look; a failure is only logged. */
  async look(): Promise<void> {
    await this.parts.ready().catch((error: unknown) => {
      this.options.log('warn', 'Incus could not be looked at', { err: error });
    });
  }

  async health(): Promise<EngineHealth> {
    const checking = checkIncus(this.parts.client, this.options);
    checking.catch((error: unknown) => {
      this.options.log('warn', 'Incus could not be checked', { err: error });
    });
    const findings = await inTime(checking, checkMs);
    if (findings) {
      const notices = findings
        .filter(({ state }) => state !== 'good')
        .map(({ topic, found, advice }) => `${topic}: ${found}. ${advice ?? ''}`.trim());
      return { ok: findings.every(({ state }) => state !== 'missing'), notices };
    }
    return { ok: false, notices: ['Incus cannot be checked: it did not answer in time.'] };
  }

  inventory(): Promise<EngineInventory> {
    return failingAs('The instances could not be listed.', async () => {
      await this.parts.ready();
      this.parts.overview.refreshIfOld();
      this.parts.keepIsolated();
      this.parts.keepPublished();
      return this.everything.take();
    });
  }

  inspect(ref: EngineRef): Promise<InstanceFacts | undefined> {
    return failingAs('The instance could not be looked at.', async () => {
      await this.parts.ready();
      return this.everything.inspect(ref);
    });
  }

  create(machine: MachineSpec, source: DiskSource, keys: readonly AuthorizedKey[]): Promise<void> {
    return this.locked(machine.ref, 'The instance could not be created.', () =>
      createInstance(this.parts, machine, source, keys),
    );
  }

  start(machine: MachineSpec): Promise<Endpoint> {
    return this.locked(machine.ref, 'The instance could not be started.', () =>
      startInstance(this.parts, machine),
    );
  }

  configure(machine: MachineSpec): Promise<void> {
    return this.locked(machine.ref, 'The instance could not be changed.', () =>
      configureInstance(this.parts, machine),
    );
  }

  stop(ref: EngineRef): Promise<void> {
    return this.locked(ref, 'The instance could not be stopped.', () =>
      stopInstance(this.parts, ref),
    );
  }

  delete(ref: EngineRef): Promise<void> {
    return this.locked(ref, 'The instance could not be deleted.', () =>
      deleteInstance(this.parts, ref),
    );
  }

  addKey(ref: EngineRef, key: AuthorizedKey): Promise<AddKeyOutcome> {
    return this.inGuest(ref, 'The key could not be added.', (place) =>
      this.parts.keys.add(place, key),
    );
  }

  removeKey(ref: EngineRef, match: KeyMatch): Promise<number> {
    return this.inGuest(ref, 'The key could not be removed.', (place) =>
      this.parts.keys.remove(place, match),
    );
  }

  readKeys(ref: EngineRef): Promise<string> {
    return this.inGuest(ref, 'The keys could not be read.', (place) => this.parts.keys.read(place));
  }

  createSnapshot(ref: EngineRef, snapshotRef: EngineRef): Promise<void> {
    return this.locked(ref, 'The snapshot could not be made.', () =>
      createSnapshot(this.parts, ref, snapshotRef),
    );
  }

  deleteSnapshot(snapshotRef: EngineRef): Promise<void> {
    return this.locked(snapshotRef, 'The snapshot could not be deleted.', () =>
      deleteSnapshot(this.parts, snapshotRef),
    );
  }

  async close({ stop }: { stop: readonly EngineRef[] }): Promise<void> {
    try {
      if (stop.length > 0) await this.stopAll(stop);
    } finally {
      this.parts.close();
    }
  }

  /** By name only: another Berth may have instances in the same Incus. */
  private async stopAll(refs: readonly EngineRef[]): Promise<void> {
    const { instances } = await this.inventory();
    const running = refs.filter((ref) => instances.get(ref)?.state === 'running');
    await Promise.all(running.map((ref) => this.stop(ref)));
  }

  private inGuest<T>(
    ref: EngineRef,
    message: string,
    work: (place: Place) => Promise<T>,
  ): Promise<T> {
    return failingAs(message, async () => {
      const place = await this.parts.places.instance(ref);
      if (!place) throw notThere();
      return work(place);
    });
  }

  private locked<T>(ref: EngineRef, message: string, task: () => Promise<T>): Promise<T> {
    return this.work.run(ref, () =>
      failingAs(message, async () => {
        await this.parts.ready();
        return task();
      }),
    );
  }
}
