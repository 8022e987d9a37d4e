import { KeyedLock } from '../domain/keyed-lock.ts';
import { samePorts } from '../domain/published-ports.ts';
import { EngineError, type EngineInventory, type MachineSpec } from '../engines/engine.ts';
import { listAllPorts } from '../store/instance-ports.ts';
import { getInstance } from '../store/instances.ts';
import { listInstancesWithLeftovers, releaseLeftovers } from '../store/placing.ts';
import type { InstanceRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';
import { withDeadline } from './engine-errors.ts';
import { inTurn } from './in-turn.ts';
import { loadMachine } from './machine.ts';

/** An answer comes within 25 s: waiting for its turn, and the engine twice, together. */
const turnPatienceMs = 7_000;
const engineDeadlineMs = 8_000;
/** A change that was given up may still be on its way, and overtake what sets it right. */
const doubtMs = 20_000;

/**
 * Brings the engine's part of an instance (its sizes, its published ports) to what the database says, and keeps it
 * there: after a restart of the service, after a change that was broken off, and when a port becomes free at last.
 */
export class InstanceConfiguration {
  readonly #context: ServiceContext;
  readonly #turns = new KeyedLock();
  /** Instances that this process has brought to what the database says. */
  readonly #configured = new Set<string>();
  /** Until when it is looked again although all was as it should be: a time, or unknown while the engine is away. */
  readonly #doubtful = new Map<string, number | undefined>();
  /** What the log has said once already: instances, and ports of theirs, that cannot be set right yet. */
  readonly #reported = new Set<string>();

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** Runs `work` when nothing else configures this instance; whoever waits too long gets a `timeout`. */
  inTurn<T>(instanceId: string, work: () => Promise<T>): Promise<T> {
    return inTurn(this.#turns, instanceId, turnPatienceMs, work);
  }

  /** Rejected, it is all as it was; an engine that is merely late is set right at the next look. */
  async apply(instanceId: string, machine: MachineSpec): Promise<void> {
    const work = this.#context.engine.configure(machine);
    try {
      await withDeadline(work, engineDeadlineMs);
    } catch (error) {
      this.#configured.delete(instanceId);
      if (error instanceof EngineError && error.kind === 'timeout')
        this.#doubtful.set(instanceId, undefined);
      throw error;
    }
  }

  /** To be called in turn: a change that the engine has made is not to be after all. */
  async takeBack(instanceId: string): Promise<void> {
    this.#configured.delete(instanceId);
    await withDeadline(this.#restore(instanceId), engineDeadlineMs).catch((error: unknown) => {
      this.#context.log.warn(
        { err: error, instance: instanceId },
        'a change of an instance will be taken back later',
      );
    });
  }

  /** Sets right what differs; never throws. */
  async look(instances: readonly InstanceRow[], inventory: EngineInventory): Promise<void> {
    const { store, engine, log, now } = this.#context;
    const leftovers = await listInstancesWithLeftovers(store.db, now());
    const wanted = engine.capabilities.publishesPorts ? await listAllPorts(store.db) : new Map();
    for (const { id, engine_ref } of instances) {
      const facts = inventory.instances.get(engine_ref);
      if (!facts || facts.state === 'unreachable') {
        // Its host may come back as if newly started.
        this.#configured.delete(id);
        continue;
      }
      const same = facts.endpoint && samePorts(facts.httpPorts ?? [], wanted.get(id) ?? []);
      const settled = facts.state === 'stopped' || (same && this.#configured.has(id));
      if (settled && !leftovers.has(id)) continue;
      const work = () => withDeadline(this.#restore(id), engineDeadlineMs);
      await this.inTurn(id, work).then(
        () => this.#reported.delete(id),
        (error: unknown) => {
          const fields = { err: error, instance: id };
          if (!this.#reported.has(id))
            log.warn(
              fields,
              'an instance could not be brought to its settings; tried at every look',
            );
          this.#reported.add(id);
        },
      );
    }
  }

  async #restore(instanceId: string): Promise<void> {
    const { store, engine, now } = this.#context;
    const instance = await getInstance(store.db, instanceId);
    // What is on its way somewhere is configured by its operation.
    if (!instance || !['RUNNING', 'STOPPED'].includes(instance.status)) return;
    const machine = await loadMachine(this.#context, instance);
    try {
      // All at once: an instance that is started at this very moment loses none of its ports by it.
      await engine.configure(machine);
      this.#settle(instanceId);
      for (const port of machine.httpPorts) this.#reported.delete(`${instanceId} ${port}`);
    } catch (error) {
      if (!isPortProblem(error)) throw error;
      await this.#publishOneByOne(instanceId, machine);
    }
    await releaseLeftovers(store.db, instance.org_id, instanceId, now());
  }

  #settle(instanceId: string): void {
    const now = this.#context.now();
    const until = this.#doubtful.has(instanceId)
      ? (this.#doubtful.get(instanceId) ?? now + doubtMs)
      : now;
    if (now < until) {
      this.#doubtful.set(instanceId, until);
      return;
    }
    this.#doubtful.delete(instanceId);
    this.#configured.add(instanceId);
  }

  /** A port that is taken is no reason to go without the others. */
  async #publishOneByOne(instanceId: string, machine: MachineSpec): Promise<void> {
    const { engine } = this.#context;
    const facts = await engine.inspect(machine.ref);
    if (facts?.state !== 'running') return;
    const published = new Set(facts.httpPorts ?? []).intersection(new Set(machine.httpPorts));
    const configure = (ports: Iterable<number>) =>
      engine.configure({ ...machine, httpPorts: [...ports] });
    await configure(published);
    this.#settle(instanceId);
    for (const port of machine.httpPorts.filter((wanted) => !published.has(wanted))) {
      if (await this.#publish(instanceId, port, () => configure([...published, port])))
        published.add(port);
    }
  }

  async #publish(
    instanceId: string,
    port: number,
    configure: () => Promise<void>,
  ): Promise<boolean> {
    const key = `${instanceId} ${port}`;
    try {
      await configure();
      this.#reported.delete(key);
      return true;
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      if (!this.#reported.has(key))
        this.#context.log.warn(
          { err: error, instance: instanceId, port },
          'a port will be published when the host has it free',
        );
      this.#reported.add(key);
      return false;
    }
  }
}

const isPortProblem = (error: unknown): boolean =>
  error instanceof EngineError && ['port_taken', 'port_refused'].includes(error.kind);
