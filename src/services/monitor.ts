import type { EngineInventory } from '../engines/engine.ts';
import { deleteKey, isPending, listPendingKeys } from '../store/instance-keys.ts';
import { getInstance, listSteadyInstances, moveInstance } from '../store/instances.ts';
import type { InstanceKeyRow, InstanceRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';
import type { InstanceConfiguration } from './instance-configuration.ts';
import { enqueue, type OperationName, operationDeadlines } from './operations.ts';

export interface MonitorOptions {
  readonly context: ServiceContext;
  readonly configuration: InstanceConfiguration;
  readonly poke: () => void;
  /** Keys that a request is still working on. */
  readonly keysInFlight: ReadonlySet<string>;
}

/**
 * Compares what the database says with what the engine holds, and sets right what differs: a dead instance is
 * started again, one that should be stopped is stopped, published ports and sizes are set, and a generated key whose
 * answer never left is taken back.
 * What the database does not know is reported, never deleted.
 */
export class Monitor {
  readonly #options: MonitorOptions;
  readonly #context: ServiceContext;
  readonly #reported = new Set<string>();
  /** The service itself ended the instances when it was stopped: nothing to worry about. */
  #expectsStopped = false;

  constructor(options: MonitorOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  /** One look; never throws. `states`: published ports are left for later, when the service has its own port. */
  async look(
    scope: 'all' | 'states' = 'all',
    { afterPlannedStop = false }: { afterPlannedStop?: boolean } = {},
  ): Promise<void> {
    this.#expectsStopped = afterPlannedStop;
    try {
      const before = await listSteadyInstances(this.#context.store.db);
      const inventory = await this.#context.engine.inventory();
      for (const instance of before) await this.#compare(instance, inventory);
      if (scope === 'all') await this.#options.configuration.look(before, inventory);
      await this.#sweepKeys();
    } catch (error) {
      this.#context.log.warn({ err: error }, 'the engine could not be looked at');
    }
  }

  async #compare(instance: InstanceRow, inventory: EngineInventory): Promise<void> {
    const facts = inventory.instances.get(instance.engine_ref);
    if (!facts) return this.#vanished(instance);
    if (facts.state === 'stopped' && instance.status === 'RUNNING') {
      return this.#repair(instance, 'instance.start', 'STARTING');
    }
    if (facts.state === 'running' && instance.status === 'STOPPED') {
      return this.#repair(instance, 'instance.stop', 'STOPPING');
    }
  }

  async #repair(
    instance: InstanceRow,
    kind: OperationName,
    status: 'STARTING' | 'STOPPING',
  ): Promise<void> {
    const { store, now, log } = this.#context;
    await store.transaction(async (tx) => {
      const change = { status, status_since: now() };
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

  async #vanished(instance: InstanceRow): Promise<void> {
    const { store, now, log } = this.#context;
    const failure =
      'The disk of this instance is gone from the engine. Delete the instance, or restore a snapshot.';
    const change = {
      status: 'UNKNOWN' as const,
      failure,
      ip: null,
      port: null,
      status_since: now(),
    };
    if (await moveInstance(store.db, instance.id, instance.status, change)) {
      log.error({ instance: instance.id }, 'an instance vanished from the engine');
    }
  }

  /** Generated keys that nobody is working on any more, and whose private half nobody has. */
  async #sweepKeys(): Promise<void> {
    const { store, log } = this.#context;
    for (const key of await listPendingKeys(store.db)) {
      // In this order: a request that ended before the first look has written its verdict by the second.
      if (this.#options.keysInFlight.has(key.id)) continue;
      if (!(await isPending(store.db, key.id))) continue;
      try {
        if (await this.#takeBack(key)) await deleteKey(store.db, key.id);
      } catch (error) {
        if (this.#reported.has(key.id)) continue;
        this.#reported.add(key.id);
        log.warn(
          { err: error, instance: key.instance_id, fingerprint: key.fingerprint },
          'a key is still to be taken back',
        );
      }
    }
  }

  /** False while the instance is on its way somewhere: a disk that is being made may still get this key. */
  async #takeBack(key: InstanceKeyRow): Promise<boolean> {
    const instance = await getInstance(this.#context.store.db, key.instance_id);
    if (!instance) return true;
    if (
      instance.deleted_at !== null ||
      !['RUNNING', 'STOPPED', 'UNKNOWN'].includes(instance.status)
    )
      return false;
    if (instance.status === 'UNKNOWN') return true;
    await this.#context.engine.removeKey(instance.engine_ref, {
      kind: 'key',
      publicKey: key.public_key,
    });
    const { id, fingerprint } = key;
    this.#context.log.info(
      { key: id, fingerprint },
      'a key whose answer was not sent was taken back',
    );
    return true;
  }
}
