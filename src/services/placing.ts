/**
 * Who gets room on which host, and whose the GPUs are. The engine takes whatever it is told to, so what its hosts have
 * is accounted for here, in the database, in the transaction that writes the row. Where the engine lists no hosts,
 * nobody accounts for them.
 *
 * A change of an instance is made by the engine first and written after, so what it adds is reserved before. GPUs that
 * such a change wanted in vain stay reserved until the engine has surely let go of them (instance-configuration.ts):
 * none is ever with two instances.
 */
import { attachesNothing, type GpuType } from '../domain/catalog.ts';
import { noCapacity } from '../domain/errors.ts';
import {
  type Amounts,
  canPlace,
  choosePlace,
  type Device,
  exchangeGpus,
  isSame,
  type Overcommit,
  type Place,
  type Room,
  requireRoom,
  type Wish,
} from '../domain/placement.ts';
import type { Db } from '../store/database.ts';
import {
  confirmGpus,
  deleteGpus,
  deleteGrowth,
  expireGpus,
  insertGpu,
  insertGrowth,
  listGpus,
  listTakenGpus,
  lockPlacing,
  sumUseByHost,
} from '../store/placing.ts';
import type { GpuAllocationRow, InstanceRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';
import { gpuOf } from './machine.ts';
import { requireQuota } from './quotas.ts';

/** Longer than a change may take; what a killed process reserved is over then. */
const reservationMs = 60_000;

const nothing = { instances: 0, cpuCores: 0, memoryGb: 0, diskGb: 0 };

/** What a change of an instance may count on, until it is settled or given up. */
export interface Reservation {
  /** All that the instance is to have. */
  readonly gpus: readonly Device[];
  readonly added: readonly GpuAllocationRow[];
  readonly removed: readonly GpuAllocationRow[];
}

export class Placing {
  readonly #context: ServiceContext;
  readonly #overcommit: Overcommit;

  constructor(context: ServiceContext, overcommit: Overcommit) {
    this.#context = context;
    this.#overcommit = overcommit;
  }

  /**
   * Finds a place for a new instance; undefined where nobody accounts. To be called in the transaction that writes
   * the row, before it does: of requests at the same moment the second sees the first.
   */
  async place(tx: Db, wish: Wish): Promise<Place | undefined> {
    if (this.#hosts.length === 0 && wish.gpuType.attach === attachesNothing) return undefined;
    await lockPlacing(tx);
    return choosePlace(await this.#rooms(tx), this.#overcommit, wish);
  }

  /** Gives the GPUs of its place to an instance whose row is written. */
  async claim(tx: Db, instance: InstanceRow, gpus: readonly Device[]): Promise<void> {
    for (const gpu of gpus) await insertOrRefuse(tx, rowOf(instance, gpu, null));
  }

  /** Answers for any number of wishes, from one look at the database. */
  async prospects(): Promise<(wish: Wish) => boolean> {
    if (this.#hosts.length === 0) return (wish) => wish.gpuType.attach === attachesNothing;
    const rooms = await this.#rooms(this.#context.store.db);
    return (wish) => canPlace(rooms, this.#overcommit, wish);
  }

  /**
   * Reserves what a change adds. `gpuType` is that of `after`; undefined: it and the number stay as they are.
   * @throws AppError `no_capacity`, or the 409 of a quota: before the engine has done anything that it cannot undo
   */
  async reserve(
    before: InstanceRow,
    after: InstanceRow,
    gpuType: GpuType | undefined,
  ): Promise<Reservation> {
    const { store } = this.#context;
    const held = await listGpus(store.db, before.org_id, before.id);
    const growth = growthOf(before, after);
    const wantsGpus = gpuType !== undefined && gpuType.attach !== attachesNothing;
    const grows = wantsGpus || Object.values(growth).some((amount) => amount > 0);
    if (!grows || (this.#hosts.length === 0 && !wantsGpus))
      return { gpus: gpuType ? [] : held.map(gpuOf), added: [], removed: gpuType ? held : [] };
    return store.transaction(async (tx) => {
      await requireQuota(tx, before.org_id, growth);
      await lockPlacing(tx);
      const room = this.#roomOf(before, await this.#rooms(tx));
      if (room) requireRoom(room, this.#overcommit, growth);
      await insertGrowth(tx, this.#growthRow(before, growth));
      return this.#reserveGpus(tx, after, { held, room, gpuType });
    });
  }

  async #reserveGpus(
    tx: Db,
    row: InstanceRow,
    now: { held: GpuAllocationRow[]; room: Room | undefined; gpuType: GpuType | undefined },
  ): Promise<Reservation> {
    const { held, room, gpuType } = now;
    if (!gpuType) return { gpus: held.map(gpuOf), added: [], removed: [] };
    if (gpuType.attach === attachesNothing) return { gpus: [], added: [], removed: held };
    if (!room)
      throw noCapacity('It is not known yet which host the instance is on. Try again in a minute.');
    const wish = { gpuType, numGpus: row.num_gpus };
    const gpus = exchangeGpus(room, held.map(gpuOf), wish);
    const until = this.#context.now() + reservationMs;
    const owner = { ...row, host: room.host.name };
    const added = gpus
      .filter((gpu) => !held.some((one) => isSame(gpuOf(one), gpu)))
      .map((gpu) => rowOf(owner, gpu, until));
    for (const gpu of added) await insertOrRefuse(tx, gpu);
    const removed = held.filter((one) => !gpus.some((gpu) => isSame(gpuOf(one), gpu)));
    return { gpus, added, removed };
  }

  /** The change is made: to be called in the transaction that writes it. */
  async settle(tx: Db, { id, org_id }: InstanceRow, reservation: Reservation): Promise<void> {
    await confirmGpus(tx, org_id, reservation.added);
    await deleteGpus(tx, org_id, reservation.removed);
    if (this.#hosts.length > 0) await deleteGrowth(tx, org_id, id);
  }

  /** The change is not made; never throws. */
  async giveUp({ id, org_id }: InstanceRow, { added }: Reservation): Promise<void> {
    const { store, now, log } = this.#context;
    try {
      if (this.#hosts.length > 0) await deleteGrowth(store.db, org_id, id);
      await expireGpus(store.db, org_id, added, now());
    } catch (error) {
      log.warn({ err: error, instance: id }, 'a reservation runs out by itself');
    }
  }

  get #hosts() {
    return this.#context.engine.capabilities.hosts;
  }

  /** Where there is one host, everything is on it, whatever it was called when it was placed. */
  async #rooms(db: Db): Promise<Room[]> {
    const hosts = this.#hosts;
    const use = await sumUseByHost(db, this.#context.now());
    const taken = Map.groupBy(await listTakenGpus(db), ({ host }) => host);
    return hosts.map((host) => ({
      host,
      used:
        hosts.length === 1
          ? [...use.values()].reduce(sum, nothing)
          : (use.get(host.name) ?? nothing),
      taken: (hosts.length === 1 ? [...taken.values()].flat() : (taken.get(host.name) ?? [])).map(
        gpuOf,
      ),
    }));
  }

  #roomOf({ host }: InstanceRow, rooms: readonly Room[]): Room | undefined {
    return rooms.length === 1 ? rooms[0] : rooms.find((room) => room.host.name === host);
  }

  #growthRow({ id, org_id }: InstanceRow, growth: Amounts) {
    return {
      instance_id: id,
      org_id,
      cpu_cores: growth.cpuCores,
      memory_gb: growth.memoryGb,
      disk_gb: growth.diskGb,
      reserved_until: this.#context.now() + reservationMs,
    };
  }
}

const rowOf = (
  instance: Pick<InstanceRow, 'id' | 'org_id' | 'host'>,
  { attach, pci, migUuid = '' }: Device,
  reservedUntil: number | null,
): GpuAllocationRow => ({
  host: instance.host ?? '',
  pci,
  mig_uuid: migUuid,
  attach,
  org_id: instance.org_id,
  instance_id: instance.id,
  reserved_until: reservedUntil,
});

async function insertOrRefuse(tx: Db, row: GpuAllocationRow): Promise<void> {
  if (await insertGpu(tx, row)) return;
  throw noCapacity('Another instance got the GPU at the same moment. Try again.');
}

/** What shrinks is not counted before it has shrunk. */
const growthOf = (before: InstanceRow, after: InstanceRow): Amounts => ({
  cpuCores: Math.max(0, after.cpu_cores - before.cpu_cores),
  memoryGb: Math.max(0, after.memory_gb - before.memory_gb),
  diskGb: Math.max(
    0,
    after.disk_size_gb + after.ephemeral_disk_gb - before.disk_size_gb - before.ephemeral_disk_gb,
  ),
});

const sum = (one: typeof nothing, other: typeof nothing): typeof nothing => ({
  instances: one.instances + other.instances,
  cpuCores: one.cpuCores + other.cpuCores,
  memoryGb: one.memoryGb + other.memoryGb,
  diskGb: one.diskGb + other.diskGb,
});
