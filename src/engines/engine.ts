/**
 * What Berth asks of the place where instances live.
 *
 * An engine returns facts and never writes Berth's state; only services do. Every method that changes
 * something is idempotent: run twice, or run again after the process was killed half-way, it ends in
 * the same place. Creating what is complete, stopping what is stopped and deleting what is gone all
 * succeed. An engine throws `EngineError` and nothing else on purpose.
 */

import type { AddKeyOutcome, AuthorizedKey, KeyMatch } from '../domain/authorized-keys.ts';

/** The engine's own name for an instance or a snapshot: made by Berth, unique for ever, safe as a file name. */
export type EngineRef = string;

/** What an engine has to say to the operator. Never holds a secret. */
export type Log = (
  level: 'info' | 'warn' | 'error',
  message: string,
  fields?: Record<string, unknown>,
) => void;

/** The login user of every instance; part of the wire contract. */
export const LOGIN_USER = 'ubuntu';

/** The shape of an instance, as the engine needs it to create or start one. */
export interface MachineSpec {
  readonly ref: EngineRef;
  readonly hostname: string;
  readonly cpuCores: number;
  readonly memoryGb: number;
  readonly diskSizeGb: number;
  /** The host port that SSH is to answer on; allocated by the caller, who keeps it unique. */
  readonly sshPort: number;
  /** Published while the instance runs: the same number on the host and inside. No other instance has one of them. */
  readonly httpPorts: readonly number[];
  /** The organization it belongs to: engines that can put tenants apart do so by it. */
  readonly orgId: string;
  /** The host it was placed on: one of `capabilities.hosts`. Undefined: the engine has one, or decides by itself. */
  readonly host: string | undefined;
  /** Its alone: allocated by the caller. */
  readonly gpus: readonly GpuDevice[];
}

/** A GPU of one host. */
export interface GpuDevice {
  /** How it is attached: one of `capabilities.attaches`. */
  readonly attach: string;
  /** PCI address, such as `0000:3b:00.0`. */
  readonly pci: string;
  /** For a part of a card: the UUID of the MIG instance. */
  readonly migUuid?: string;
}

/** What a host has in all, in use or not. */
export interface HostCapacity {
  readonly name: string;
  /** False: it cannot be reached; nothing new is placed there. */
  readonly online: boolean;
  readonly cpuCores: number;
  readonly memoryGb: number;
  readonly diskGb: number;
  readonly gpus: readonly GpuDevice[];
}

/** What a new disk starts from. */
export type DiskSource =
  | { readonly kind: 'template'; readonly template: string }
  | { readonly kind: 'snapshot'; readonly snapshotRef: EngineRef };

/** Where `ssh` reaches a running instance. */
export interface Endpoint {
  readonly ip: string;
  readonly port: number;
}

export interface InstanceFacts {
  /** `unreachable`: the engine has it, on a host that does not answer. */
  readonly state: 'running' | 'stopped' | 'unreachable';
  /** Of one that is stopped: it was not, or was started since, at the last look; whoever stopped it may start it again. */
  readonly unsettled?: boolean;
  /** The host it is on, where the engine has several. */
  readonly host?: string;
  /** Where SSH answers; only while running. */
  readonly endpoint?: Endpoint;
  /** The ports that are published now; left out when there are none. */
  readonly httpPorts?: readonly number[];
}

/** Everything the engine holds, complete or not: what the reconciler compares with the database. */
export interface EngineInventory {
  readonly instances: ReadonlyMap<EngineRef, InstanceFacts>;
  readonly snapshots: ReadonlySet<EngineRef>;
  /** Something could not be looked at, a host of many, say: what is not in here may be there all the same. */
  readonly incomplete?: boolean;
}

export interface EngineHealth {
  readonly ok: boolean;
  /** Plain sentences for an operator: what is missing or weaker than it could be, and how to mend it. */
  readonly notices: readonly string[];
}

/** What an engine can do, as data: services read it before they accept a request. */
export interface EngineCapabilities {
  /** A snapshot stops the instance's processes while its disk is copied. */
  readonly snapshotPauses: boolean;
  readonly enforcesCpu: boolean;
  readonly enforcesMemory: boolean;
  readonly enforcesDiskSize: boolean;
  /** The instance cannot reach the host's own network addresses. */
  readonly ownNetwork: boolean;
  /** Ports of an instance can be published on the host, and taken back, while it runs. */
  readonly publishesPorts: boolean;
  /** A login gets a shell. False where the host permits no isolation and the operator did not opt in. */
  readonly shells: boolean;
  /** Ways of attaching GPUs that a catalog may name; empty where there are none to attach. */
  readonly attaches: readonly string[];
  /** Names of the templates that a disk can start from. */
  readonly templates: readonly string[];
  /** Those of them that become virtual machines, none of which has more processors than its host. */
  readonly virtualMachines: readonly string[];
  /** What there is to place instances on, as of the last look; empty where nobody has to account for it. */
  readonly hosts: readonly HostCapacity[];
}

export type EngineErrorKind =
  /** The engine cannot be reached or is not usable on this host. */
  | 'unavailable'
  /** It did not answer in time; the outcome is not known. */
  | 'timeout'
  /** It refused or failed. */
  | 'failed'
  /** What the guest put in the way: a symlink for `~/.ssh`, a FIFO, a file that is too large. */
  | 'guest_conflict'
  /** The instance is not running, or is gone. */
  | 'not_running'
  /** A port asked for is in use by something else on the host. */
  | 'port_taken'
  /** The host does not let anybody of ours listen on that port. */
  | 'port_refused'
  /** The disk is full. */
  | 'no_space'
  /** More than any host of its kind can have, however empty. */
  | 'no_capacity'
  /** It can be done while the instance is stopped, and only then. */
  | 'running';

/** `message` is safe to show and says what to do next; `detail` and `cause` are for the log. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly kind: EngineErrorKind;
  readonly detail: string | undefined;
  /** Of a failed `addKey` that may have done its work all the same: resolves when that is known, and never rejects. */
  readonly outcome: Promise<AddKeyOutcome | undefined> | undefined;

  constructor(
    kind: EngineErrorKind,
    message: string,
    options: {
      detail?: string;
      cause?: unknown;
      outcome?: Promise<AddKeyOutcome | undefined>;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.detail = options.detail;
    this.outcome = options.outcome;
  }
}

export interface Engine {
  readonly name: string;
  /** As of the last look: an engine that others change, too, has other templates and hosts a minute later. */
  readonly capabilities: EngineCapabilities;
  /** Is it usable now? Never throws. */
  health(): Promise<EngineHealth>;
  inventory(): Promise<EngineInventory>;
  /** Facts about one instance; undefined when the engine does not hold it. */
  inspect(ref: EngineRef): Promise<InstanceFacts | undefined>;
  /** Makes the disk, with these keys authorized; leaves the instance stopped. A half-made one is made anew. */
  create(machine: MachineSpec, source: DiskSource, keys: readonly AuthorizedKey[]): Promise<void>;
  /**
   * Starts the instance and waits until sshd sends its banner. A port that cannot be published is no reason not to
   * start: `inspect` says which are.
   */
  start(machine: MachineSpec): Promise<Endpoint>;
  /**
   * Makes an instance, running or stopped, as the spec says: its sizes and, while it runs, its published ports.
   * All or nothing. Connections through a port that is not published any more are cut.
   * @throws EngineError `port_taken` or `port_refused`, which name the port
   */
  configure(machine: MachineSpec): Promise<void>;
  stop(ref: EngineRef): Promise<void>;
  /** Stops it, then removes disk, processes, mounts and files. */
  delete(ref: EngineRef): Promise<void>;
  /** Resolved: the line is in the file, flushed to disk, and sshd reads that file. Rejected: the file is as it was, unless the error has an `outcome`. */
  addKey(ref: EngineRef, key: AuthorizedKey): Promise<AddKeyOutcome>;
  /** How many lines were taken out; every other line stays byte for byte. A missing file is 0. */
  removeKey(ref: EngineRef, match: KeyMatch): Promise<number>;
  /** The text of `authorized_keys`; empty when there is no such file. */
  readKeys(ref: EngineRef): Promise<string>;
  /** Copies a running instance's disk, as of one moment; the copy outlives the instance. */
  createSnapshot(ref: EngineRef, snapshotRef: EngineRef): Promise<void>;
  deleteSnapshot(snapshotRef: EngineRef): Promise<void>;
  /** Stops these instances, whose disks stay, then lets go of timers and handles. What else runs goes on running. */
  close(options: { stop: readonly EngineRef[] }): Promise<void>;
}
