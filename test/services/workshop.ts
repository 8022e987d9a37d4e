import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Catalog, defaultCatalog } from '../../src/domain/catalog.ts';
import { KeyedLock } from '../../src/domain/keyed-lock.ts';
import { defaultOvercommit, type Overcommit } from '../../src/domain/placement.ts';
import {
  type Engine,
  type EngineCapabilities,
  EngineError,
  type EngineInventory,
  type EngineRef,
  type InstanceFacts,
} from '../../src/engines/engine.ts';
import { openEngine } from '../../src/engines/registry.ts';
import { AdminTokenService } from '../../src/services/admin-tokens.ts';
import type { Actor, ServiceContext } from '../../src/services/context.ts';
import { InstanceConfiguration } from '../../src/services/instance-configuration.ts';
import { InstanceKeyService } from '../../src/services/instance-keys.ts';
import { InstanceModifyService } from '../../src/services/instance-modify.ts';
import { instanceOperations } from '../../src/services/instance-operations.ts';
import { InstanceService, type NewInstance } from '../../src/services/instances.ts';
import { KeySweeper } from '../../src/services/key-sweeper.ts';
import { Monitor } from '../../src/services/monitor.ts';
import type { OperationKind } from '../../src/services/operations.ts';
import { OrganizationService } from '../../src/services/organizations.ts';
import { Placing } from '../../src/services/placing.ts';
import { snapshotOperations } from '../../src/services/snapshot-operations.ts';
import { SnapshotService } from '../../src/services/snapshots.ts';
import { TokenService } from '../../src/services/tokens.ts';
import { Worker } from '../../src/services/worker.ts';
import { openStore } from '../../src/store/database.ts';

/** Which calls of the real engine fail, and how often: a fault put in front of it, not a stand-in for it. */
export class Faults {
  #cleared = Promise.withResolvers<never>();
  readonly #left = new Map<string, { times: number; error: EngineError; after: boolean }>();
  /** Hosts and GPUs that this machine lacks; the engine itself stays as it is. */
  capabilities: Partial<EngineCapabilities> = {};
  /** Facts on their way from the engine, by its name for the instance; undefined leaves them out. */
  facts: (ref: EngineRef, facts: InstanceFacts) => InstanceFacts | undefined = (_ref, facts) =>
    facts;
  /** The engine says that it could not see everything. */
  incomplete = false;
  /** What a method waits for before the engine hears of it. */
  readonly gates = new Map<keyof Engine, Promise<void>>();
  /** Methods that never answer. */
  readonly hanging = new Set<keyof Engine>();
  /** Instances in which whatever is done about keys does not end before `clear`: their root may see to that. */
  readonly hangingGuests = new Set<EngineRef>();
  /** What was asked of the engine. */
  readonly asked: { readonly method: string; readonly parameters: readonly unknown[] }[] = [];

  /** `after`: the engine does its work, and the caller hears of a failure all the same. */
  inject(
    method: keyof Engine,
    times: number,
    options: { kind?: EngineError['kind']; after?: boolean } = {},
  ): void {
    const error = new EngineError(options.kind ?? 'failed', 'An injected fault.');
    this.#left.set(method, { times, error, after: options.after ?? false });
  }

  constructor() {
    this.#cleared.promise.catch(() => {});
  }

  clear(): void {
    this.#left.clear();
    this.hanging.clear();
    this.hangingGuests.clear();
    this.#cleared.reject(new EngineError('timeout', 'A guest that hung.'));
    this.#cleared = Promise.withResolvers();
    this.#cleared.promise.catch(() => {});
    this.gates.clear();
    this.capabilities = {};
    this.facts = (_ref, facts) => facts;
    this.incomplete = false;
    this.asked.length = 0;
  }

  around(engine: Engine): Engine {
    return new Proxy(engine, { get: (target, name) => this.#wrap(target, name) });
  }

  #wrap(engine: Engine, name: string | symbol): unknown {
    const value: unknown = Reflect.get(engine, name, engine);
    if (name === 'capabilities') return { ...engine.capabilities, ...this.capabilities };
    if (typeof value !== 'function') return value;
    return async (...parameters: unknown[]) => {
      this.asked.push({ method: String(name), parameters });
      if (this.hanging.has(name as keyof Engine)) return new Promise(() => {});
      if (/Keys?$/.test(String(name)) && this.hangingGuests.has(parameters[0] as EngineRef))
        return this.#cleared.promise;
      await this.gates.get(name as keyof Engine);
      const fault = this.#left.get(String(name));
      const strikes = fault !== undefined && fault.times > 0;
      if (fault && strikes) fault.times -= 1;
      if (fault && strikes && !fault.after) throw fault.error;
      const result: unknown = await Reflect.apply(value, engine, parameters);
      if (fault && strikes) throw fault.error;
      return name === 'inventory' ? this.#seenThrough(result as EngineInventory) : result;
    };
  }

  #seenThrough({ instances, snapshots }: EngineInventory): EngineInventory {
    const seen = new Map<EngineRef, InstanceFacts>();
    for (const [ref, facts] of instances) {
      const changed = this.facts(ref, facts);
      if (changed) seen.set(ref, changed);
    }
    if (!this.incomplete) return { instances: seen, snapshots };
    return { instances: seen, snapshots: new Set(), incomplete: true };
  }
}

const quiet = { info: () => {}, warn: () => {}, error: () => {} };

export const smallest: NewInstance = {
  cpuCores: 1,
  diskSizeGb: 10,
  ephemeralDiskGb: 0,
  gpuType: 'cpu',
  numGpus: 1,
  mode: 'prototyping',
  template: 'base',
};

export type Workshop = Awaited<ReturnType<typeof openWorkshop>>;

/** The services on a real store and a real engine, with a clock that stands still and a worker driven by hand. */
export async function openWorkshop(
  ports: { from: number; to: number },
  catalog: Catalog = defaultCatalog,
  overcommit: Overcommit = defaultOvercommit,
) {
  const folder = mkdtempSync(join(tmpdir(), 'berth-services-'));
  chmodSync(folder, 0o711);
  const store = await openStore(`sqlite:${join(folder, 'berth.db')}`);
  const real = await openEngine('sandbox', {
    dataDir: folder,
    listenAddress: '127.0.0.1',
    portsAddress: '127.0.0.1',
    allowUnconfinedShells: false,
    network: 'host',
    limits: 'auto',
    sandboxUser: 'berth-sandbox',
    log: () => {},
  });
  const faults = new Faults();
  const clock = { nowMs: Date.now() };
  const now = () => clock.nowMs;
  const context: ServiceContext = {
    store,
    engine: faults.around(real),
    log: quiet,
    now,
    crashPoint: () => {},
  };
  const locks = new KeyedLock();
  const keys = new InstanceKeyService(context, locks, (instance) =>
    newKeySweeper().requireFewLeft(instance),
  );
  const newKeySweeper = (turnMs = 10_000) =>
    new KeySweeper({ context, keysInFlight: keys.inFlight, locks, turnMs });
  const poke = () => {};
  const placing = new Placing(context, overcommit);
  const instances = new InstanceService({
    context,
    catalog,
    placing,
    sshPorts: ports,
    poke,
    keysInFlight: keys.inFlight,
  });
  const snapshots = new SnapshotService({ context, catalog, poke });
  const configuration = new InstanceConfiguration(context);
  const kinds = [
    ...instanceOperations(context, ports, catalog),
    ...snapshotOperations(context, (orgId) => snapshots.changed(orgId)),
  ];
  const newWorker = (owner: string, using: readonly OperationKind[] = kinds) =>
    new Worker({ ...context, kinds: using, owner, onFinished: () => {} });
  const worker = newWorker('test');
  const newMonitor = () =>
    new Monitor({
      ...{ context, configuration, poke },
      snapshotsChanged: (orgId) => snapshots.changed(orgId),
    });
  const actor = await makeActor(context);
  return {
    ...{
      catalog,
      placing,
      store,
      engine: real,
      faults,
      clock,
      context,
      keys,
      instances,
      snapshots,
      kinds,
      worker,
      newWorker,
      actor,
    },
    instanceModify: new InstanceModifyService({
      ...{ context, catalog, placing, configuration, sshPorts: ports },
      ownPorts: () => [],
    }),
    monitor: newMonitor(),
    newKeySweeper,
    /** As after a restart. */
    newMonitor,
    /** Runs what is due, lets the clock pass over every pause, and goes on until nothing is left to do. */
    settle: async () => {
      for (let round = 0; round < 500; round++) {
        await worker.runOnce();
        if (!(await hasOpenOperations(context))) return;
        clock.nowMs += 31_000;
      }
      throw new Error('operations never end');
    },
    close: async () => {
      await real.close({ stop: [...(await real.inventory()).instances.keys()] });
      await store.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function hasOpenOperations({ store }: ServiceContext): Promise<boolean> {
  const open = await store.db
    .selectFrom('operations')
    .select('id')
    .where('finished_at', 'is', null)
    .execute();
  return open.length > 0;
}

async function makeActor(context: ServiceContext): Promise<Actor> {
  const organizations = new OrganizationService(context.store, context.now);
  await organizations.create({ name: 'workshop', email: 'test@localhost' });
  const tokens = new AdminTokenService(context.store, context.now);
  const { token } = await tokens.create({ organization: 'workshop', name: 'test' });
  return new TokenService(context).authenticate(token, 'test');
}
