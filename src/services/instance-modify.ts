/**
 * Changing an instance: its sizes and its published ports.
 *
 * The engine changes first and the database after it, in one durable commit: who is told of a port can reach it.
 * Killed in between, nobody was told, the database says what it said before, and the engine is brought back to that
 * after the restart. What was committed is made true again there in the same way (instance-configuration.ts).
 */
import { type Catalog, checkPlacement, type GpuType } from '../domain/catalog.ts';
import { type AppError, conflict, invalidRequest } from '../domain/errors.ts';
import { changePorts, samePorts } from '../domain/published-ports.ts';
import type { Db } from '../store/database.ts';
import { deletePorts, findTakenPort, insertPort, listPorts } from '../store/instance-ports.ts';
import { changeInstance } from '../store/instances.ts';
import type { InstanceRow } from '../store/schema.ts';
import { audit } from './audit.ts';
import { type Actor, requireInstance, requireState, type ServiceContext } from './context.ts';
import { explainEngineError } from './engine-errors.ts';
import type { InstanceConfiguration } from './instance-configuration.ts';
import { machineOf } from './machine.ts';
import type { Placing, Reservation } from './placing.ts';
import type { PortRange } from './ports.ts';
import { requireQuota } from './quotas.ts';

/** What a caller wants changed; what is left out stays. */
export interface InstanceChange {
  readonly cpuCores?: number;
  readonly diskSizeGb?: number;
  readonly ephemeralDiskGb?: number;
  readonly gpuType?: string;
  readonly numGpus?: number;
  readonly mode?: string;
  readonly addPorts: readonly number[];
  readonly removePorts: readonly number[];
}

export interface ModifiedInstance {
  readonly row: InstanceRow;
  readonly httpPorts: readonly number[];
}

export interface InstanceModifyOptions {
  readonly context: ServiceContext;
  readonly catalog: Catalog;
  readonly placing: Placing;
  readonly configuration: InstanceConfiguration;
  /** The range that instances' SSH ports are taken from: not to be published. */
  readonly sshPorts: PortRange;
  /** Where the service itself listens, once it does: not to be published either. */
  readonly ownPorts: () => readonly number[];
}

/** A change that was checked: from here, to there. */
interface Plan {
  readonly actor: Actor;
  readonly action: 'instance.modify' | 'instance.ports';
  readonly before: ModifiedInstance;
  readonly after: ModifiedInstance;
  /** Who asks for a port is told that it can be reached, so the engine has to say so each time. */
  readonly asksForPorts: boolean;
  /** When the type or number of its GPUs changes: the type that it is to have. */
  readonly gpuType: GpuType | undefined;
}

export class InstanceModifyService {
  readonly #options: InstanceModifyOptions;
  readonly #context: ServiceContext;

  constructor(options: InstanceModifyOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  /** Resolved: everything is as asked for, and stays so. Rejected: nothing has changed. */
  modify(actor: Actor, reference: string, change: InstanceChange): Promise<ModifiedInstance> {
    return this.#change(actor, reference, change, 'instance.modify');
  }

  /** The same for published ports alone. */
  changePorts(
    actor: Actor,
    reference: string,
    change: Pick<InstanceChange, 'addPorts' | 'removePorts'>,
  ): Promise<ModifiedInstance> {
    const { addPorts, removePorts } = change;
    return this.#change(actor, reference, { addPorts, removePorts }, 'instance.ports');
  }

  async #change(
    actor: Actor,
    reference: string,
    change: InstanceChange,
    action: Plan['action'],
  ): Promise<ModifiedInstance> {
    const { id } = await requireInstance(this.#context.store.db, actor, reference);
    const { configuration } = this.#options;
    try {
      return await configuration.inTurn(id, async () => {
        const asksForPorts = change.addPorts.length > 0;
        const plan = { actor, action, asksForPorts, ...(await this.#plan(actor, id, change)) };
        const { placing } = this.#options;
        const reservation = await placing.reserve(plan.before.row, plan.after.row, plan.gpuType);
        try {
          return await this.#carryOut(plan, reservation);
        } catch (error) {
          await placing.giveUp(plan.before.row, reservation);
          throw error;
        }
      });
    } catch (error) {
      throw explainEngineError(error);
    }
  }

  async #plan(
    actor: Actor,
    id: string,
    change: InstanceChange,
  ): Promise<Pick<Plan, 'before' | 'after' | 'gpuType'>> {
    const { db } = this.#context.store;
    const row = await requireInstance(db, actor, id);
    const current = await listPorts(db, actor.orgId, id);
    const httpPorts = changePorts(current, { add: change.addPorts, remove: change.removePorts });
    const { changed, gpuType } = this.#resize(row, change);
    requireState('modify', row);
    await this.#requirePublishable(
      db,
      id,
      httpPorts.filter((port) => !current.includes(port)),
    );
    return { before: { row, httpPorts: current }, after: { row: changed, httpPorts }, gpuType };
  }

  #resize(
    row: InstanceRow,
    change: InstanceChange,
  ): { changed: InstanceRow; gpuType: GpuType | undefined } {
    const wanted = {
      gpuType: change.gpuType ?? row.gpu_type,
      numGpus: change.numGpus ?? row.num_gpus,
      mode: change.mode ?? row.mode,
      cpuCores: change.cpuCores ?? row.cpu_cores,
      diskSizeGb: change.diskSizeGb ?? row.disk_size_gb,
      ephemeralDiskGb: change.ephemeralDiskGb ?? row.ephemeral_disk_gb,
    };
    if (wanted.diskSizeGb < row.disk_size_gb)
      throw invalidRequest(
        `The field "disk_size_gb" is ${wanted.diskSizeGb}, but the disk of this instance has ${row.disk_size_gb} GB and can only grow.`,
      );
    const changed = {
      ...row,
      gpu_type: wanted.gpuType,
      num_gpus: wanted.numGpus,
      mode: wanted.mode,
      cpu_cores: wanted.cpuCores,
      disk_size_gb: wanted.diskSizeGb,
      ephemeral_disk_gb: wanted.ephemeralDiskGb,
    };
    // What was placed under an older catalog may keep its shape.
    if (sameSizes(row, changed)) return { changed: row, gpuType: undefined };
    const { catalog, context } = this.#options;
    const placement = checkPlacement(catalog, context.engine.capabilities, wanted);
    return {
      changed: { ...changed, memory_gb: placement.memoryGb },
      gpuType: sameGpus(row, changed) ? undefined : placement.gpuType,
    };
  }

  async #requirePublishable(db: Db, id: string, ports: readonly number[]): Promise<void> {
    const { context, sshPorts, ownPorts } = this.#options;
    if (ports.length > 0 && !context.engine.capabilities.publishesPorts)
      throw invalidRequest(
        'Ports cannot be published on this host; its operator finds the reason in GET /readyz. Use a tunnel instead: ssh -L.',
      );
    const forSsh = ports.find((port) => port >= sshPorts.from && port <= sshPorts.to);
    if (forSsh !== undefined)
      throw invalidRequest(
        `The field "add_ports" has ${forSsh}, but ${sshPorts.from} to ${sshPorts.to} are for the SSH of instances. Choose another port.`,
      );
    const taken =
      ports.find((port) => ownPorts().includes(port)) ?? (await findTakenPort(db, id, ports));
    if (taken !== undefined) throw portTaken(taken);
  }

  async #carryOut(plan: Plan, reservation: Reservation): Promise<ModifiedInstance> {
    const { configuration } = this.#options;
    const { store, engine, crashPoint } = this.#context;
    const { before, after } = plan;
    const { id } = before.row;
    const isSame =
      !plan.asksForPorts &&
      before.row === after.row &&
      samePorts(before.httpPorts, after.httpPorts);
    const { gpus } = reservation;
    const { hosts } = engine.capabilities;
    const machine = machineOf(after.row, { httpPorts: after.httpPorts, gpus }, hosts);
    if (!isSame) await configuration.apply(id, machine);
    crashPoint('modify:configured:after');
    try {
      await store.transaction((tx) => this.#write(tx, plan, reservation));
    } catch (error) {
      if (!isSame) await configuration.takeBack(id);
      throw error;
    }
    crashPoint('modify:written:after');
    return after;
  }

  async #write(tx: Db, plan: Plan, reservation: Reservation): Promise<void> {
    const { actor, action, before, after } = plan;
    const { now } = this.#context;
    const { row } = after;
    await requireQuota(tx, actor.orgId, {
      cpuCores: row.cpu_cores - before.row.cpu_cores,
      diskGb: diskOf(row) - diskOf(before.row),
    });
    if (!(await changeInstance(tx, actor.orgId, before.row, sizesOf(row))))
      throw conflict('The instance changed at the same moment. Look at its status and try again.');
    await this.#options.placing.settle(tx, row, reservation);
    const added = after.httpPorts.filter((port) => !before.httpPorts.includes(port));
    const removed = before.httpPorts.filter((port) => !after.httpPorts.includes(port));
    await deletePorts(tx, actor.orgId, row.id, removed);
    for (const port of added) {
      const owner = { org_id: actor.orgId, instance_id: row.id };
      if (!(await insertPort(tx, { ...owner, port, created_at: now() }))) throw portTaken(port);
    }
    const outcome = describe(before.row, row, added, removed);
    await audit(tx, actor, now(), { action, subject: row.id, outcome });
  }
}

const diskOf = (row: InstanceRow): number => row.disk_size_gb + row.ephemeral_disk_gb;

const sizesOf = (row: InstanceRow) => ({
  gpu_type: row.gpu_type,
  num_gpus: row.num_gpus,
  mode: row.mode,
  cpu_cores: row.cpu_cores,
  memory_gb: row.memory_gb,
  disk_size_gb: row.disk_size_gb,
  ephemeral_disk_gb: row.ephemeral_disk_gb,
});

const sameGpus = (one: InstanceRow, other: InstanceRow): boolean =>
  one.gpu_type.toLowerCase() === other.gpu_type.toLowerCase() && one.num_gpus === other.num_gpus;

const sameSizes = (one: InstanceRow, other: InstanceRow): boolean =>
  JSON.stringify(sizesOf(one)) === JSON.stringify(sizesOf(other));

/** For the audit log: `done cpu_cores=4 +8000 -9000`. */
function describe(
  before: InstanceRow,
  after: InstanceRow,
  added: readonly number[],
  removed: readonly number[],
): string {
  const old: Readonly<Record<string, unknown>> = sizesOf(before);
  const sizes = Object.entries(sizesOf(after)).filter(([name, value]) => old[name] !== value);
  const words = [
    ...sizes.map(([name, value]) => `${name}=${value}`),
    ...added.map((port) => `+${port}`),
    ...removed.map((port) => `-${port}`),
  ];
  return words.length === 0 ? 'unchanged' : `done ${words.join(' ')}`;
}

/** Whose it is, is nobody's business. */
const portTaken = (port: number): AppError =>
  conflict(`Port ${port} is in use on this host, so it cannot be published. Choose another port.`);
