import type { InstanceStatus } from '../domain/lifecycle.ts';
import type { EngineInventory, InstanceFacts } from '../engines/engine.ts';
import { listSteadyInstances, moveInstance, updateInstance } from '../store/instances.ts';
import type { InstanceRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';
import { withDeadline } from './engine-errors.ts';
import type { InstanceConfiguration } from './instance-configuration.ts';
import { enqueue, type OperationName, operationDeadlines } from './operations.ts';
import { SnapshotKeeper } from './snapshot-keeper.ts';
import { StrayReporter } from './strays.ts';

const vanished =
  'This instance is gone from the engine, or was changed there by hand. Ask the operator, or delete it and restore a snapshot.';
const unreachable =
  'The host of this instance does not answer. The instance comes back when its host does.';

export interface MonitorOptions {
  readonly context: ServiceContext;
  readonly configuration: InstanceConfiguration;
  readonly poke: () => void;
  /** Called with the organization whose list of snapshots is not what it was. */
  readonly snapshotsChanged: (orgId: string) => void;
  /** An engine that hangs must not keep the monitor from its next look. */
  readonly engineDeadlineMs?: number;
}

const defaultDeadlineMs = 10_000;

/**
 * Compares what the database says with what the engine holds, and sets right what differs: a dead instance is
 * started again, one that should be stopped is stopped, published ports and sizes are set. An instance that the engine
 * lost sight of is UNKNOWN until it has it again, a snapshot FAILED.
 * What the database does not know is reported, never deleted.
 */
export class Monitor {
  readonly #options: MonitorOptions;
  readonly #context: ServiceContext;
  readonly #strays: StrayReporter;
  readonly #snapshots: SnapshotKeeper;
  readonly #deadlineMs: number;
  /** The slow part of a look, while it is under way: the next look begins no second one. */
  #slowPart: Promise<void> | undefined;
  /** The service itself ended the instances when it was stopped: nothing to worry about. */
  #expectsStopped = false;
  /** It could not be looked at the last time. */
  #isAway = false;

  constructor(options: MonitorOptions) {
    this.#options = options;
    this.#context = options.context;
    this.#strays = new StrayReporter(options.context);
    this.#snapshots = new SnapshotKeeper(options.context, options.snapshotsChanged);
    this.#deadlineMs = options.engineDeadlineMs ?? defaultDeadlineMs;
  }

  /** One look; never throws. `states`: published ports are left for later, when the service has its own port. */
  async look(
    scope: 'all' | 'states' = 'all',
    { afterPlannedStop = false }: { afterPlannedStop?: boolean } = {},
  ): Promise<void> {
    this.#expectsStopped = afterPlannedStop;
    try {
      const before = await listSteadyInstances(this.#context.store.db);
      await this.#snapshots.begin();
      const inventory = await withDeadline(this.#context.engine.inventory(), this.#deadlineMs);
      this.#sayItAnswers();
      for (const instance of before) await this.#compare(instance, inventory);
      await this.#snapshots.look(inventory);
      await this.#strays.look(inventory);
      // What takes longer goes on beside the next looks.
      if (scope === 'states' || this.#slowPart) return;
      const slowPart = this.#options.configuration.look(before, inventory);
      this.#slowPart = slowPart.finally(() => {
        this.#slowPart = undefined;
      });
      await withDeadline(this.#slowPart, this.#deadlineMs);
    } catch (error) {
      this.#sayItIsAway(error);
    }
  }

  /** Once, and not every two seconds for as long as it is away. */
  #sayItIsAway(error: unknown): void {
    if (!this.#isAway) this.#context.log.warn({ err: error }, 'the engine could not be looked at');
    this.#isAway = true;
  }

  #sayItAnswers(): void {
    if (this.#isAway) this.#context.log.info({}, 'the engine can be looked at again');
    this.#isAway = false;
  }

  /** What cannot be set right now is tried again at the next look, and keeps nobody else from it. */
  async #compare(instance: InstanceRow, inventory: EngineInventory): Promise<void> {
    const facts = inventory.instances.get(instance.engine_ref);
    try {
      if (!facts) {
        if (!inventory.incomplete) await this.#lost(instance, vanished);
      } else if (facts.state === 'unreachable') await this.#lost(instance, unreachable);
      else await this.#compareFacts(await this.#settleHost(instance, facts), facts);
    } catch (error) {
      const fields = { err: error, instance: instance.id };
      this.#context.log.warn(fields, 'an instance could not be set right');
    }
  }

  async #compareFacts(instance: InstanceRow, facts: InstanceFacts): Promise<void> {
    const wanted = instance.status_before ?? instance.status;
    if (facts.state === 'stopped' && wanted === 'RUNNING') {
      if (facts.unsettled) return;
      return this.#repair(instance, 'instance.start', 'STARTING');
    }
    if (facts.state === 'running' && wanted === 'STOPPED')
      return this.#repair(instance, 'instance.stop', 'STOPPING');
    if (instance.status !== 'UNKNOWN') return;
    if (wanted === 'RUNNING' && !facts.endpoint)
      return this.#repair(instance, 'instance.start', 'STARTING');
    return this.#found(instance, wanted, facts);
  }

  /** The operator may move an instance to another host. */
  async #settleHost(instance: InstanceRow, { host }: InstanceFacts): Promise<InstanceRow> {
    if (host === undefined || host === instance.host) return instance;
    await updateInstance(this.#context.store.db, instance.id, { host });
    return { ...instance, host };
  }

  async #repair(
    instance: InstanceRow,
    kind: OperationName,
    status: 'STARTING' | 'STOPPING',
  ): Promise<void> {
    const { store, now, log } = this.#context;
    await store.transaction(async (tx) => {
      const change = { status, status_since: now(), failure: null, status_before: null };
      if (!(await moveInstance(tx, instance.id, instance.status, change))) return;
      const ids = {
        orgId: instance.org_id,
        subjectId: instance.id,
        lockId: instance.id,
        tokenId: undefined,
      };
      await enqueue(tx, { ...ids, kind, now: now() }, operationDeadlines[kind]);
    });
    const fields = { instance: instance.id, kind };
    if (this.#expectsStopped && kind === 'instance.start')
      log.info(fields, 'an instance starts again after the planned stop of the service');
    else log.warn(fields, 'an instance is not as it should be; setting it right');
    this.#options.poke();
  }

  async #lost(instance: InstanceRow, failure: string): Promise<void> {
    if (instance.failure === failure && instance.status === 'UNKNOWN') return;
    const { store, now, log } = this.#context;
    const change = {
      status: 'UNKNOWN' as const,
      status_before: instance.status_before ?? instance.status,
      failure,
      ip: null,
      port: null,
      status_since: now(),
    };
    if (!(await moveInstance(store.db, instance.id, instance.status, change))) return;
    const fields = { instance: instance.id, host: instance.host };
    if (failure === vanished) log.error(fields, 'an instance vanished from the engine');
    else log.error(fields, 'the host of an instance does not answer');
  }

  /** As it was before the engine lost sight of it. */
  async #found(instance: InstanceRow, status: InstanceStatus, facts: InstanceFacts): Promise<void> {
    const { store, now, log } = this.#context;
    const { ip = null, port = null } = facts.endpoint ?? {};
    const change = { status, status_before: null, failure: null, ip, port, status_since: now() };
    if (await moveInstance(store.db, instance.id, 'UNKNOWN', change))
      log.info({ instance: instance.id, status }, 'the engine has an instance again');
  }
}
