/** What the server and its hosts are and have, as of the last look. A look takes a few milliseconds, so it is repeated. */

import type { EngineCapabilities, GpuDevice, HostCapacity } from '../engine.ts';
import type { IncusClient } from './client.ts';
import type { GuestType } from './instance-config.ts';
import type { Member, Members } from './members.ts';
import { templateOf } from './names.ts';
import { readMs } from './objects.ts';
import type { IncusOptions } from './options.ts';
import { quotasKey } from './pool-quotas.ts';

interface ServerObject {
  readonly environment: {
    readonly server_clustered: boolean;
    readonly kernel_features?: Readonly<Record<string, string>>;
  };
}

interface ResourcesObject {
  readonly cpu: { readonly total: number };
  readonly memory: { readonly total: number };
  readonly gpu: { readonly cards: readonly { readonly pci_address?: string }[] | null };
}

interface AliasObject {
  readonly name: string;
  readonly type: GuestType;
}

export interface PoolObject {
  readonly driver: string;
  readonly config: Readonly<Record<string, string>>;
}

export interface Look {
  readonly clustered: boolean;
  readonly idmappedMounts: boolean;
  readonly limitsDisks: boolean;
  /** Templates by name: what kind of guest each makes. */
  readonly templates: ReadonlyMap<string, GuestType>;
  readonly hosts: readonly HostCapacity[];
}

const nothing: Look = {
  clustered: false,
  idmappedMounts: false,
  limitsDisks: true,
  templates: new Map(),
  hosts: [],
};

/** A lost host is to be noticed within seconds. */
const ageMs = { alone: 10_000, clustered: 1_500 };
const hostMs = 2_000;

export class Overview {
  readonly #client: IncusClient;
  readonly #members: Members;
  readonly #options: IncusOptions;
  #look = nothing;
  /** The host ran out of user ids. */
  sharesIds = false;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> | undefined;

  constructor(client: IncusClient, members: Members, options: IncusOptions) {
    this.#client = client;
    this.#members = members;
    this.#options = options;
  }

  /** With the hosts that are lost at this very moment. */
  get last(): Look {
    const { lost } = this.#members;
    if (lost.size === 0) return this.#look;
    const hosts = this.#look.hosts.map((host) =>
      lost.has(host.name) ? { ...host, online: false } : host,
    );
    return { ...this.#look, hosts };
  }

  /** Each guest has user ids of its own, where that costs nothing and the host has enough of them. */
  get isolatesIds(): boolean {
    return this.#look.idmappedMounts && !this.sharesIds;
  }

  /** True when that is why a guest was refused: from now on they share theirs. */
  sharesIdsAfter(error: unknown): boolean {
    if (this.sharesIds || !(error instanceof Error)) return false;
    this.sharesIds = /Not enough uid\/gid/i.test(error.message);
    if (this.sharesIds)
      this.#options.log('warn', 'the host has not enough user ids: instances share theirs');
    return this.sharesIds;
  }

  /** Looks again when the last look is too old; the caller need not wait for it. */
  refreshIfOld(): void {
    const { clustered } = this.#look;
    const age = performance.now() - this.#lookedAt;
    if (age < (clustered ? ageMs.clustered : ageMs.alone)) return;
    this.refresh().catch((error: unknown) => {
      this.#options.log('warn', 'the hosts could not be looked at', { err: error });
    });
  }

  /** One look at a time: whoever asks meanwhile gets its result. */
  refresh(): Promise<void> {
    this.#looking ??= this.#lookNow().finally(() => {
      this.#looking = undefined;
      this.#lookedAt = performance.now();
    });
    return this.#looking;
  }

  async #lookNow(): Promise<void> {
    const { pool } = this.#options;
    const read = <T>(path: string, query = {}) =>
      this.#client.get<T>(path, { query, timeoutMs: readMs });
    const [server, storage, aliases, members] = await Promise.all([
      read<ServerObject>('/1.0'),
      read<PoolObject>(`/1.0/storage-pools/${pool}`),
      read<AliasObject[]>('/1.0/images/aliases', { recursion: '1' }),
      this.#members.look(),
    ]);
    const { server_clustered: clustered, kernel_features: features } = server.environment;
    const hosts = await Promise.all(members.map((member) => this.#capacityOf(member, clustered)));
    this.#look = {
      clustered,
      idmappedMounts: features?.idmapped_mounts === 'true',
      limitsDisks: limitsDisks(storage),
      templates: templatesIn(aliases),
      hosts,
    };
  }

  /** Of a host that does not answer, what it had when it did. */
  async #capacityOf(member: Member, clustered: boolean): Promise<HostCapacity> {
    const { name, reachable, closed } = member;
    const before = this.#look.hosts.find((host) => host.name === name);
    const lost = { ...(before ?? { name, ...emptyHost }), online: false };
    if (!reachable || closed) return lost;
    const options = { ...(clustered && { target: name }), timeoutMs: hostMs };
    const pool = `/1.0/storage-pools/${this.#options.pool}/resources`;
    try {
      const [resources, { space }] = await Promise.all([
        this.#client.get<ResourcesObject>('/1.0/resources', options),
        this.#client.get<{ space: { total: number } }>(pool, options),
      ]);
      return {
        name,
        online: true,
        cpuCores: resources.cpu.total,
        memoryGb: Math.floor(resources.memory.total / 1024 ** 3),
        diskGb: Math.floor(space.total / 1000 ** 3),
        gpus: cardsIn(resources),
      };
    } catch (error) {
      this.#options.log('warn', 'a host does not answer', { host: name, err: error });
      return lost;
    }
  }
}

/** A plain folder takes a size and ignores it; where the setup found no simple quotas, snapshots would become slow. */
const limitsDisks = ({ driver, config }: PoolObject): boolean =>
  driver !== 'dir' && config[quotasKey] !== 'none';

const emptyHost = { cpuCores: 0, memoryGb: 0, diskGb: 0, gpus: [] };

const cardsIn = ({ gpu }: ResourcesObject): GpuDevice[] =>
  (gpu.cards ?? []).flatMap(({ pci_address: pci }) =>
    pci === undefined ? [] : [{ attach: 'physical', pci }],
  );

const templatesIn = (aliases: readonly AliasObject[]): Map<string, GuestType> =>
  new Map(
    aliases.flatMap(({ name, type }): [string, GuestType][] => {
      const template = templateOf(name);
      return template === undefined ? [] : [[template, type]];
    }),
  );

export function capabilitiesOf(look: Look): EngineCapabilities {
  const hasCards = look.hosts.some(({ gpus }) => gpus.length > 0);
  return {
    snapshotPauses: false,
    enforcesCpu: true,
    enforcesMemory: true,
    enforcesDiskSize: look.limitsDisks,
    ownNetwork: true,
    publishesPorts: true,
    shells: true,
    attaches: hasCards ? ['physical', 'mig'] : [],
    templates: [...look.templates.keys()],
    virtualMachines: [...look.templates].flatMap(([template, type]) =>
      type === 'virtual-machine' ? [template] : [],
    ),
    hosts: look.hosts,
  };
}
