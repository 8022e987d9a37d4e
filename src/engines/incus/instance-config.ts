/**
 * The bodies of Incus's REST calls that make, copy and change instances. No I/O: exact JSON from a spec.
 *
 * A copy inherits every key and device of its source, so whatever one of these bodies sets, the others set or empty too.
 */

import type { AuthorizedKey } from '../../domain/authorized-keys.ts';
import { EngineError, type EngineRef, type GpuDevice, type MachineSpec } from '../engine.ts';
import { imageAlias, instanceName, snapshotName } from './names.ts';
import { deniedSyscalls } from './syscalls.ts';

export type Device = Readonly<Record<string, string>>;
export type Devices = Readonly<Record<string, Device>>;
export type Settings = Readonly<Record<string, string>>;

export type GuestType = 'container' | 'virtual-machine';

export interface InstanceBody {
  readonly name: string;
  readonly type: GuestType;
  readonly architecture?: string;
  readonly profiles: readonly string[];
  readonly source: Readonly<Record<string, string | boolean>>;
  readonly config: Settings;
  readonly devices: Devices;
}

/** What the machine's spec does not say. */
export interface Surroundings {
  readonly pool: string;
  /** False where the pool cannot limit disks, or only at the price of slow snapshots. */
  readonly limitsDisks: boolean;
  readonly nic: Device;
  readonly type: GuestType;
  /** Each guest has user ids of its own on the host. */
  readonly isolated: boolean;
  /** The driver's libraries are mounted into guests that have an NVIDIA card. */
  readonly nvidiaRuntime: boolean;
}

/** Enough for any honest workload; a fork bomb ends here and not at the host's limit. */
const processLimit = '8192';

export const berthKeys = {
  kind: 'user.berth.kind',
  ref: 'user.berth.ref',
  /** Virtual machines ask for it. */
  hostname: 'user.berth.hostname',
  /** Keys that are to be added at the first start, as JSON. */
  firstKeys: 'user.berth.keys',
  /** `true`: an instance that has started once, a snapshot whose copy has ended. */
  ready: 'user.berth.ready',
} as const;

export const isReady = (config: Settings): boolean => config[berthKeys.ready] === 'true';

/** CPU and memory, which can be changed while it runs. */
export const sizesOf = (machine: MachineSpec): Settings => ({
  'limits.cpu': String(machine.cpuCores),
  'limits.memory': `${machine.memoryGb}GiB`,
});

/** Everything but sizes. Virtual machines know none of the limits and rights of containers. */
function rightsOf({ type, isolated, nvidiaRuntime }: Surroundings, machine: MachineSpec): Settings {
  if (type === 'virtual-machine') return { 'boot.autostart': 'false' };
  return {
    'boot.autostart': 'false',
    'limits.processes': processLimit,
    'nvidia.runtime': nvidiaRuntime && machine.gpus.length > 0 ? 'true' : '',
    'security.idmap.isolated': String(isolated),
    ...fencesOf(type),
    ...identityOf(machine),
  };
}

/** What keeps a guest from Incus and its host; set anew at each start, so that older instances have it as well. */
export function fencesOf(type: GuestType, config: Settings = {}): Settings {
  if (type === 'virtual-machine') return bootOf(config);
  return {
    // Its connections to Incus would be as many as it likes, until Incus can open no file.
    'security.guestapi': 'false',
    'security.nesting': 'false',
    'security.syscalls.deny': deniedSyscalls,
  };
}

/** Incus starts what is signed alone, and refuses an image that says it is not, unless it is told to. */
const bootOf = (config: Settings): Settings =>
  config['image.requirements.secureboot'] === 'false' ? { 'security.secureboot': 'false' } : {};

/** Who it is: in the environment of its first process, /proc/1/environ (image-files/.../identity). */
const identityOf = ({ ref, hostname }: MachineSpec): Settings => ({
  'environment.BERTH_ID': ref,
  'environment.BERTH_HOSTNAME': hostname,
});

export const rootDisk = (pool: string, sizeGb: number | undefined): Device => ({
  type: 'disk',
  path: '/',
  pool,
  ...(sizeGb !== undefined && { size: `${sizeGb}GB` }),
});

/** The size in GB of a disk that `rootDisk` made. */
export function diskSizeOf(devices: Devices): number | undefined {
  const match = /^(\d+)GB$/.exec(devices.root?.size ?? '');
  return match ? Number(match[1]) : undefined;
}

/** A card is always named: without its address Incus gives all there are. */
export function gpuDevice({ attach, pci, migUuid }: GpuDevice): Device {
  if (!/^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/i.test(pci))
    throw new EngineError('failed', 'The catalog names a GPU without a PCI address.');
  if (attach === 'physical') return { type: 'gpu', gputype: 'physical', pci };
  if (attach === 'mig' && migUuid !== undefined)
    return { type: 'gpu', gputype: 'mig', pci, 'mig.uuid': migUuid };
  throw new EngineError('failed', 'This GPU cannot be attached to an instance of this engine.');
}

export const gpuDevices = (gpus: readonly GpuDevice[]): Devices =>
  Object.fromEntries(gpus.map((gpu, index) => [`gpu${index}`, gpuDevice(gpu)]));

function instanceConfig(
  machine: MachineSpec,
  around: Surroundings,
  keys: readonly AuthorizedKey[],
): Settings {
  return {
    ...sizesOf(machine),
    ...rightsOf(around, machine),
    [berthKeys.kind]: 'instance',
    [berthKeys.ref]: machine.ref,
    [berthKeys.hostname]: machine.hostname,
    [berthKeys.firstKeys]: writeKeys(keys),
    [berthKeys.ready]: '',
  };
}

const instanceDevices = (machine: MachineSpec, around: Surroundings): Devices => ({
  // A virtual machine's disk is a file of that size, and holds the limit by itself.
  root: rootDisk(
    around.pool,
    around.limitsDisks || around.type === 'virtual-machine' ? machine.diskSizeGb : undefined,
  ),
  eth0: around.nic,
  ...gpuDevices(machine.gpus),
});

export function bodyFromTemplate(
  machine: MachineSpec,
  template: string,
  around: Surroundings,
  keys: readonly AuthorizedKey[],
): InstanceBody {
  return {
    name: instanceName(machine.ref),
    type: around.type,
    profiles: [],
    source: { type: 'image', alias: imageAlias(template) },
    config: instanceConfig(machine, around, keys),
    devices: instanceDevices(machine, around),
  };
}

/** Where a copy comes from. */
export interface CopySource {
  readonly name: string;
  readonly project: string;
  readonly type: GuestType;
  readonly architecture: string;
  readonly devices: Devices;
  readonly config: Settings;
}

const copyOf = ({ name, project }: CopySource) => ({
  type: 'copy',
  source: name,
  project,
  instance_only: true,
});

export function bodyFromHolder(
  machine: MachineSpec,
  holder: CopySource,
  around: Surroundings,
  keys: readonly AuthorizedKey[],
): InstanceBody {
  return {
    name: instanceName(machine.ref),
    type: holder.type,
    // A member of a cluster that copies from another one wants to know it.
    architecture: holder.architecture,
    profiles: [],
    source: copyOf(holder),
    config: { ...emptied(holder.config), ...instanceConfig(machine, around, keys), ...noTemplates },
    devices: { ...masked(holder.devices), ...instanceDevices(machine, around) },
  };
}

/** A stopped instance that is never started: the disk, and nothing that uses up an address, a card or memory. */
export function holderBody(snapshotRef: EngineRef, source: CopySource): InstanceBody {
  const { root } = source.devices;
  return {
    name: snapshotName(snapshotRef),
    type: source.type,
    architecture: source.architecture,
    profiles: [],
    source: copyOf(source),
    config: {
      ...emptied(source.config),
      'boot.autostart': 'false',
      [berthKeys.kind]: 'snapshot',
      [berthKeys.ref]: snapshotRef,
      ...noTemplates,
    },
    devices: { ...masked(source.devices), ...(root && { root }) },
  };
}

/**
 * The templates of an image are written at the first start of a copy, by root of the host, to paths on a disk that a
 * tenant has had: a symbolic link there would be followed, or keep the copy from starting.
 */
const noTemplates: Settings = { 'volatile.apply_template': 'none' };

/** What a source has set by us or by hand, taken back: an empty value is as good as none. */
const emptied = (config: Settings): Settings =>
  Object.fromEntries(
    Object.keys(config)
      .filter((key) => /^(?:limits|security|nvidia|user|raw|boot|environment|linux)\./.test(key))
      .map((key) => [key, '']),
  );

const masked = (devices: Devices): Devices =>
  Object.fromEntries(
    Object.keys(devices)
      .filter((name) => name !== 'root')
      .map((name) => [name, { type: 'none' }]),
  );

/** What has to be sent so that the devices are as wanted: a PATCH merges, so what is to go is masked. */
export function deviceChange(current: Devices, wanted: Devices): Devices {
  const isSame = (name: string) => sameDevice(current[name], wanted[name]);
  const surplus = Object.keys(masked(current)).filter(
    (name) => !(name in wanted) && current[name]?.type !== 'none',
  );
  return Object.fromEntries([
    ...surplus.map((name): [string, Device] => [name, { type: 'none' }]),
    ...Object.entries(wanted).filter(([name]) => !isSame(name)),
  ]);
}

const sameDevice = (one: Device | undefined, other: Device | undefined): boolean =>
  one !== undefined &&
  other !== undefined &&
  Object.keys({ ...one, ...other }).every((key) => one[key] === other[key]);

/** The settings of `wanted` that differ from what is. */
export const settingsChange = (current: Settings, wanted: Settings): Settings =>
  Object.fromEntries(
    Object.entries(wanted).filter(([key, value]) => (current[key] ?? '') !== value),
  );

export const firstStartDone: { readonly config: Settings } = {
  config: { [berthKeys.firstKeys]: '', [berthKeys.ready]: 'true' },
};

export const copyDone: { readonly config: Settings } = { config: { [berthKeys.ready]: 'true' } };

export const stateChange = (
  action: 'start' | 'stop' | 'unfreeze',
  options: { force?: boolean; timeoutSeconds?: number } = {},
) => ({ action, timeout: options.timeoutSeconds ?? -1, force: options.force ?? false });

const writeKeys = (keys: readonly AuthorizedKey[]): string =>
  keys.length === 0 ? '' : JSON.stringify(keys);

/** What `writeKeys` wrote. */
export function readKeys(text: string | undefined): AuthorizedKey[] {
  if (text === undefined || text === '') return [];
  const keys = JSON.parse(text) as { publicKey: string; expiresAt?: string }[];
  return keys.map(({ publicKey, expiresAt }) => ({
    publicKey,
    ...(expiresAt !== undefined && { expiresAt: new Date(expiresAt) }),
  }));
}
