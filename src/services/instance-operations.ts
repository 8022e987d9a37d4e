import type { AuthorizedKey } from '../domain/authorized-keys.ts';
import type { Catalog } from '../domain/catalog.ts';
import { type Endpoint, EngineError } from '../engines/engine.ts';
import type { Db } from '../store/database.ts';
import { listKeys } from '../store/instance-keys.ts';
import { deleteInstanceRow, getInstance, updateInstance } from '../store/instances.ts';
import type { InstanceRow, InstanceTable, OperationRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';
import { engineSource } from './disk-sources.ts';
import { loadMachine } from './machine.ts';
import {
  isFinalEngineError,
  type OperationKind,
  operationDeadlines,
  type Step,
} from './operations.ts';
import { choosePort, type PortRange } from './ports.ts';

/** How often a busy SSH port is tried again before a started instance gets another one. */
const loyaltyToPort = 3;

/** The slow work on instances: one entry a kind, steps in order. */
export function instanceOperations(
  context: ServiceContext,
  sshPorts: PortRange,
  catalog: Catalog,
): OperationKind[] {
  const steps = new InstanceSteps(context, sshPorts, catalog);
  const set = (change: Partial<InstanceTable>) => (tx: Db, operation: OperationRow) =>
    updateInstance(tx, operation.subject_id, { ...change, status_since: context.now() });
  const failed =
    (status: 'UNKNOWN' | 'STOPPED') => (tx: Db, operation: OperationRow, failure: string) =>
      set({ status, failure, ip: null, port: null })(tx, operation);
  const enterStarting = set({ status: 'STARTING' });
  return [
    {
      kind: 'instance.create',
      deadlineMs: operationDeadlines['instance.create'],
      steps: [steps.disk, { ...steps.start, enter: enterStarting }],
      isFinal: isFinalEngineError,
      succeed: set({ status: 'RUNNING', failure: null }),
      fail: failed('UNKNOWN'),
    },
    {
      kind: 'instance.start',
      deadlineMs: operationDeadlines['instance.start'],
      steps: [steps.start],
      isFinal: isFinalEngineError,
      succeed: set({ status: 'RUNNING', failure: null }),
      fail: failed('STOPPED'),
    },
    {
      kind: 'instance.stop',
      deadlineMs: operationDeadlines['instance.stop'],
      steps: [steps.stop],
      succeed: set({ status: 'STOPPED', ip: null, port: null }),
      fail: failed('UNKNOWN'),
    },
    {
      kind: 'instance.delete',
      deadlineMs: operationDeadlines['instance.delete'],
      steps: [steps.stop, steps.remove],
      succeed: (tx, operation) => deleteInstanceRow(tx, operation.subject_id),
      fail: failed('UNKNOWN'),
    },
  ];
}

class InstanceSteps {
  readonly #context: ServiceContext;
  readonly #sshPorts: PortRange;
  readonly #catalog: Catalog;
  /** Ports that something else on this host answered on. */
  readonly #foreignPorts = new Set<number>();

  readonly disk: Step = {
    name: 'disk',
    run: async (operation) => {
      const instance = await this.#instance(operation);
      const { engine, store } = this.#context;
      await engine.create(
        await loadMachine(this.#context, instance),
        await engineSource(store.db, instance, this.#catalog),
        await this.#keys(instance),
      );
    },
    undo: async (operation) => {
      await this.#context.engine.delete((await this.#instance(operation)).engine_ref);
    },
  };

  readonly start: Step = {
    name: 'start',
    run: async (operation) => {
      const endpoint = await this.#startOnSomePort(operation);
      await updateInstance(this.#context.store.db, operation.subject_id, endpoint);
    },
    undo: async (operation) => {
      await this.#context.engine.stop((await this.#instance(operation)).engine_ref);
    },
  };

  readonly stop: Step = {
    name: 'stop',
    run: async (operation) => {
      await this.#context.engine.stop((await this.#instance(operation)).engine_ref);
    },
  };

  readonly remove: Step = {
    name: 'disk',
    run: async (operation) => {
      await this.#context.engine.delete((await this.#instance(operation)).engine_ref);
    },
  };

  constructor(context: ServiceContext, sshPorts: PortRange, catalog: Catalog) {
    this.#context = context;
    this.#sshPorts = sshPorts;
    this.#catalog = catalog;
  }

  async #instance(operation: OperationRow): Promise<InstanceRow> {
    const instance = await getInstance(this.#context.store.db, operation.subject_id);
    if (!instance) throw new Error(`operation ${operation.id} lost its instance`);
    return instance;
  }

  async #keys(instance: InstanceRow): Promise<AuthorizedKey[]> {
    const rows = await listKeys(this.#context.store.db, instance.org_id, instance.id);
    return rows.map((row) => ({ publicKey: row.public_key }));
  }

  /** A new instance moves on to the next port at once; one whose port clients know is loyal to it for a while. */
  async #startOnSomePort(operation: OperationRow): Promise<Endpoint> {
    const { engine, store } = this.#context;
    const instance = await this.#instance(operation);
    try {
      return await engine.start(await loadMachine(this.#context, instance));
    } catch (error) {
      const taken = error instanceof EngineError && error.kind === 'port_taken';
      const loyal = operation.kind === 'instance.start' && operation.attempts < loyaltyToPort;
      if (!taken || loyal) throw error;
      this.#foreignPorts.add(instance.ssh_port);
      const port = await choosePort(store.db, this.#sshPorts, this.#foreignPorts);
      await updateInstance(store.db, instance.id, { ssh_port: port });
      return this.#startOnSomePort(operation);
    }
  }
}
