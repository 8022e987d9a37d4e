import { type Catalog, checkPlacement } from '../domain/catalog.ts';
import { AppError } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import type { InstanceStatus } from '../domain/lifecycle.ts';
import { generateKeyPair } from '../domain/ssh-key-pair.ts';
import { parsePublicKey } from '../domain/ssh-public-key.ts';
import type { Db } from '../store/database.ts';
import {
  confirmKey,
  listActiveKeys,
  listKeys,
  recordKey,
  withdrawKey,
} from '../store/instance-keys.ts';
import { listPorts, listPortsByInstance } from '../store/instance-ports.ts';
import { insertInstance, listInstances, moveInstance } from '../store/instances.ts';
import { takeIdentifier } from '../store/organizations.ts';
import type { InstanceRow } from '../store/schema.ts';
import { audit } from './audit.ts';
import { type Actor, requireInstance, requireState, type ServiceContext } from './context.ts';
import { type NamedSource, resolveSource } from './disk-sources.ts';
import type { OnConfirm } from './kept-answers.ts';
import { enqueue, type OperationName, operationDeadlines } from './operations.ts';
import type { Placing } from './placing.ts';
import { choosePort, type PortRange } from './ports.ts';
import { growthOfInstance, requireQuota } from './quotas.ts';

export interface NewInstance {
  readonly cpuCores: number;
  readonly diskSizeGb: number;
  readonly ephemeralDiskGb: number;
  readonly gpuType: string;
  readonly numGpus: number;
  readonly mode: string;
  readonly template: string;
  /** Absent: a pair is generated. */
  readonly publicKey?: string;
}

export interface CreatedInstance {
  readonly uuid: string;
  readonly identifier: number;
  /** The generated private key; "" when the caller sent a public key. */
  readonly privateKey: string;
  /** To be called when the answer could not be sent: nobody has the private key then. */
  readonly takeBack: () => Promise<void>;
}

/** What a kept answer is made of. */
export type ConfirmedInstance = Omit<CreatedInstance, 'takeBack'>;

/** An instance and the key lines that callers were told of. */
export interface InstanceView {
  readonly row: InstanceRow;
  readonly publicKeys: readonly string[];
  readonly httpPorts: readonly number[];
}

export interface InstanceServiceOptions {
  readonly context: ServiceContext;
  readonly catalog: Catalog;
  readonly placing: Placing;
  readonly sshPorts: PortRange;
  /** Tells the worker that there is something to do. */
  readonly poke: () => void;
  /** Generated keys of requests that are still being answered: not for the sweeper. */
  readonly keysInFlight: Set<string>;
}

/** Instances: create, list, start, stop, delete. */
export class InstanceService {
  readonly #options: InstanceServiceOptions;
  readonly #context: ServiceContext;

  constructor(options: InstanceServiceOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  /** Accepts a new instance: it is PROVISIONING (or RESTORING) when this resolves. Bad sizes are a 400 before a row is written. */
  async create(
    actor: Actor,
    input: NewInstance,
    onConfirm?: OnConfirm<ConfirmedInstance>,
  ): Promise<CreatedInstance> {
    const { catalog, placing } = this.#options;
    const { capabilities } = this.#context.engine;
    const { memoryGb, gpuType } = checkPlacement(catalog, capabilities, input);
    const generated =
      input.publicKey === undefined ? generateKeyPair('berth-generated') : undefined;
    const key = generated?.publicKey ?? parsePublicKey(input.publicKey ?? '');
    const keyId = newId();
    // Where the answer can be asked for again, nobody has to wait for it to leave.
    const unsure = generated !== undefined && onConfirm === undefined;
    this.#options.keysInFlight.add(keyId);
    try {
      const made = await this.#context.store.transaction(async (tx) => {
        const wanted = { orgId: actor.orgId, ...input };
        const source = await resolveSource(tx, wanted, catalog, capabilities);
        const size = growthOfInstance(input);
        await requireQuota(tx, actor.orgId, size);
        const { numGpus } = input;
        const { hosts, isVirtualMachine } = source;
        const amounts = { ...size, memoryGb };
        const wish = { amounts, gpuType, numGpus, hosts, isVirtualMachine };
        const place = await placing.place(tx, wish);
        const host = place?.host ?? null;
        const instance = await this.#newRow(tx, actor, input, { source, memoryGb, host });
        await insertInstance(tx, instance);
        await placing.claim(tx, instance, place?.gpus ?? []);
        const recorded = {
          id: keyId,
          org_id: actor.orgId,
          instance_id: instance.id,
          added_at: this.#context.now(),
        };
        const facts = {
          public_key: key.line,
          key_type: key.type,
          fingerprint: key.fingerprint,
          comment: key.comment,
        };
        const state = unsure ? 'pending' : 'active';
        await recordKey(tx, { ...recorded, ...facts, source: 'create', state, expires_at: null });
        await this.#enqueue(tx, actor, instance.id, 'instance.create');
        const { id: uuid, identifier } = instance;
        const confirmed = { uuid, identifier, privateKey: generated?.privateKey ?? '' };
        await onConfirm?.(tx, confirmed);
        return confirmed;
      });
      if (unsure) await this.#context.store.transaction((tx) => confirmKey(tx, keyId));
      this.#options.poke();
      const { db } = this.#context.store;
      return { ...made, takeBack: async () => (unsure ? withdrawKey(db, keyId) : undefined) };
    } finally {
      this.#options.keysInFlight.delete(keyId);
    }
  }

  async #newRow(
    tx: Db,
    actor: Actor,
    input: NewInstance,
    resolved: { source: NamedSource; memoryGb: number; host: string | null },
  ): Promise<InstanceRow> {
    const now = this.#context.now();
    const id = newId();
    const identifier = await takeIdentifier(tx, actor.orgId);
    const restoring = resolved.source.snapshot !== undefined;
    return {
      id,
      org_id: actor.orgId,
      identifier,
      engine_ref: id,
      name: `instance-${identifier}`,
      status: restoring ? 'RESTORING' : 'PROVISIONING',
      cpu_cores: input.cpuCores,
      num_gpus: input.numGpus,
      memory_gb: resolved.memoryGb,
      disk_size_gb: input.diskSizeGb,
      ephemeral_disk_gb: input.ephemeralDiskGb,
      gpu_type: input.gpuType,
      mode: input.mode,
      template: resolved.source.name,
      snapshot_id: resolved.source.snapshot?.id ?? null,
      ssh_port: await choosePort(tx, this.#options.sshPorts, new Set()),
      ip: null,
      port: null,
      failure: null,
      created_at: now,
      status_since: now,
      deleted_at: null,
      host: resolved.host,
      status_before: null,
    };
  }

  /** Every instance of the organization, by number. */
  async list(actor: Actor): Promise<InstanceView[]> {
    const { db } = this.#context.store;
    const rows = await listInstances(db, actor.orgId);
    const keys = Map.groupBy(await listActiveKeys(db, actor.orgId), (key) => key.instance_id);
    const ports = await listPortsByInstance(db, actor.orgId);
    return rows.map((row) => ({
      row,
      httpPorts: ports.get(row.id) ?? [],
      publicKeys: (keys.get(row.id) ?? []).map((key) => key.public_key),
    }));
  }

  async get(actor: Actor, reference: string): Promise<InstanceView> {
    const { db } = this.#context.store;
    const row = await requireInstance(db, actor, reference);
    const keys = await listKeys(db, actor.orgId, row.id);
    return {
      row,
      httpPorts: await listPorts(db, actor.orgId, row.id),
      publicKeys: keys.filter((key) => key.state === 'active').map((key) => key.public_key),
    };
  }

  start(actor: Actor, reference: string): Promise<string> {
    return this.#change(actor, reference, 'start', 'STARTING');
  }

  stop(actor: Actor, reference: string): Promise<string> {
    return this.#change(actor, reference, 'stop', 'STOPPING');
  }

  /** Accepted, it does not exist any more for callers; its snapshots stay whole. */
  delete(actor: Actor, reference: string): Promise<string> {
    return this.#change(actor, reference, 'delete', 'STOPPING');
  }

  async #change(
    actor: Actor,
    reference: string,
    action: 'start' | 'stop' | 'delete',
    status: InstanceStatus,
  ): Promise<string> {
    const { store, now } = this.#context;
    const run = action === 'delete' ? store.freeingTransaction : store.transaction;
    const sentence = await run(async (tx) => {
      const instance = await requireInstance(tx, actor, reference);
      if (requireState(action, instance))
        return `Instance ${instance.identifier} is ${instance.status} already.`;
      await this.#enqueue(tx, actor, instance.id, `instance.${action}`);
      const deletion = action === 'delete' ? { deleted_at: now() } : {};
      const change = {
        status,
        status_since: now(),
        failure: null,
        status_before: null,
        ...deletion,
      };
      if (!(await moveInstance(tx, instance.id, instance.status, change))) throw changedMeanwhile();
      return `Instance ${instance.identifier} is being ${participles[action]}.`;
    });
    this.#options.poke();
    return sentence;
  }

  async #enqueue(tx: Db, actor: Actor, instanceId: string, kind: OperationName): Promise<void> {
    const now = this.#context.now();
    const operation = {
      orgId: actor.orgId,
      kind,
      subjectId: instanceId,
      lockId: instanceId,
      tokenId: actor.tokenId,
      now,
    };
    await enqueue(tx, operation, operationDeadlines[kind]);
    await audit(tx, actor, now, { action: kind, subject: instanceId, outcome: 'accepted' });
  }
}

const participles = { start: 'started', stop: 'stopped', delete: 'deleted' } as const;

const changedMeanwhile = (): AppError =>
  new AppError(
    'conflict',
    'The instance changed at the same moment. Look at its status and try again.',
  );
