/** What may be asked for: kinds of machines, what they cost, and what a disk starts from. An operator may write their own (catalog-file.ts). */

import { invalidRequest } from './errors.ts';
import { shorten } from './shorten.ts';

export const modes = ['prototyping', 'production'] as const;
export type Mode = (typeof modes)[number];

export interface Range {
  readonly min: number;
  readonly max: number;
}

/** Attaches nothing: for a host without GPUs, and for trials of a catalog that names some. */
export const attachesNothing = 'none';

export interface GpuType {
  readonly name: string;
  readonly displayName: string;
  /** Of one GPU. */
  readonly vramGb: number;
  readonly counts: readonly number[];
  /** How the engine attaches it: `none`, or one of the words in its capabilities. */
  readonly attach: string;
  /** The only hosts that it is to be had on; empty: any. */
  readonly hosts: readonly string[];
  /** The devices that count as one of it; empty: all that a host has for its way of attaching. */
  readonly devices: readonly ListedDevice[];
}

export interface ListedDevice {
  /** Undefined: the device with this address on every host that has one. */
  readonly host?: string;
  /** PCI address in lower case. */
  readonly pci: string;
  readonly migUuid?: string;
}

/** One way to place an instance: a type of GPU, how many, in which mode. */
export interface Spec {
  /** `<gpu>_x<count>_<mode>`. */
  readonly key: string;
  /** The name of its GPU type, as the catalog writes it. */
  readonly gpuType: string;
  readonly gpuCount: number;
  readonly mode: Mode;
  /** Ascending. */
  readonly vcpuOptions: readonly number[];
  readonly ramPerVcpuGib: number;
  readonly storageGb: Range;
  readonly ephemeralStorageGb: Range;
  readonly pricePerHour: number;
}

/** What a template suggests to a client that asks for nothing else. */
export interface DefaultSpecs {
  readonly cores: number;
  readonly gpuType: string;
  readonly numGpus: number;
  readonly storageGb: number;
}

export interface Template {
  readonly key: string;
  readonly displayName: string;
  readonly extendedDescription: string;
  /** What the engine starts the disk from: one of the templates in its capabilities. */
  readonly source: string;
  /** The only hosts that it is to be had on; empty: any. */
  readonly hosts: readonly string[];
  readonly openPorts: readonly number[];
  readonly startupCommands: readonly string[];
  readonly startupMinutes: number;
  readonly version: number;
  readonly isDefault: boolean;
  readonly defaultSpecs: DefaultSpecs;
  readonly automountFolders: readonly string[];
  readonly cleanupCommands: readonly string[];
}

/** Per hour, on top of the price of the spec. */
export interface Prices {
  readonly additionalVcpus: number;
  readonly diskGb: number;
  readonly ephemeralDiskGb: number;
}

export interface Catalog {
  readonly gpuTypes: readonly GpuType[];
  readonly specs: readonly Spec[];
  readonly templates: readonly Template[];
  readonly prices: Prices;
}

/** What of the engine's capabilities decides whether something can be placed. */
export interface PlacingAbilities {
  /** Ways of attaching GPUs, besides `none`. */
  readonly attaches: readonly string[];
  readonly templates: readonly string[];
}

export const specKey = (gpuType: string, gpuCount: number, mode: Mode): string =>
  `${gpuType}_x${gpuCount}_${mode}`;

/** Every whole number of the range, ascending. */
export const numbersOf = ({ min, max }: Range): number[] =>
  Array.from({ length: max - min + 1 }, (_none, index) => min + index);

const defaultSpec = (mode: Mode): Spec => ({
  key: specKey('cpu', 1, mode),
  gpuType: 'cpu',
  gpuCount: 1,
  mode,
  vcpuOptions: numbersOf({ min: 1, max: 64 }),
  ramPerVcpuGib: 4,
  storageGb: { min: 1, max: 2048 },
  ephemeralStorageGb: { min: 0, max: 2048 },
  pricePerHour: 0,
});

/** For a host without GPUs: the type `cpu`, of which one attaches nothing. */
export const defaultCatalog: Catalog = {
  gpuTypes: [
    {
      ...{ name: 'cpu', displayName: 'CPU only', vramGb: 0, counts: [1] },
      ...{ attach: attachesNothing, hosts: [], devices: [] },
    },
  ],
  specs: modes.map(defaultSpec),
  templates: [
    {
      key: 'base',
      displayName: 'Base',
      extendedDescription: 'The system of the host, with SSH and nothing else set up.',
      source: 'base',
      hosts: [],
      openPorts: [],
      startupCommands: [],
      startupMinutes: 1,
      version: 1,
      isDefault: true,
      defaultSpecs: { cores: 2, gpuType: 'cpu', numGpus: 1, storageGb: 10 },
      automountFolders: [],
      cleanupCommands: [],
    },
  ],
  prices: { additionalVcpus: 0, diskGb: 0, ephemeralDiskGb: 0 },
};

/** Matched without regard to case, as clients write it in many ways. */
export function findGpuType(catalog: Catalog, name: string): GpuType | undefined {
  return catalog.gpuTypes.find((type) => type.name.toLowerCase() === name.toLowerCase());
}

/** By key, then by display name. */
export function findTemplate(catalog: Catalog, name: string): Template | undefined {
  const byKey = catalog.templates.find((template) => template.key === name);
  return (
    byKey ??
    catalog.templates.find((template) => template.displayName.toLowerCase() === name.toLowerCase())
  );
}

/** The shape of an instance that somebody wants, new or changed. */
export interface WantedPlacement {
  readonly gpuType: string;
  readonly numGpus: number;
  readonly mode: string;
  readonly cpuCores: number;
  readonly diskSizeGb: number;
  readonly ephemeralDiskGb: number;
}

export interface Placement {
  readonly gpuType: GpuType;
  readonly spec: Spec;
  readonly memoryGb: number;
}

/** Throws `invalid_request` that names the field, its value and what is allowed. */
export function checkPlacement(
  catalog: Catalog,
  abilities: Pick<PlacingAbilities, 'attaches'>,
  wanted: WantedPlacement,
): Placement {
  const gpuType = requireGpuType(catalog, abilities, wanted.gpuType);
  if (!gpuType.counts.includes(wanted.numGpus)) {
    const counts = describeNumbers(gpuType.counts);
    throw refusal('num_gpus', wanted.numGpus, `for "${gpuType.name}" it must be ${counts}`);
  }
  const spec = requireSpec(catalog, gpuType, wanted);
  if (!spec.vcpuOptions.includes(wanted.cpuCores)) {
    const options = describeNumbers(spec.vcpuOptions);
    throw refusal('cpu_cores', wanted.cpuCores, `${ofSpec(spec)} it must be ${options}`);
  }
  checkRange('disk_size_gb', wanted.diskSizeGb, spec, spec.storageGb);
  checkRange('ephemeral_disk_gb', wanted.ephemeralDiskGb, spec, spec.ephemeralStorageGb);
  return { gpuType, spec, memoryGb: wanted.cpuCores * spec.ramPerVcpuGib };
}

export function canAttach(type: GpuType, abilities: Pick<PlacingAbilities, 'attaches'>): boolean {
  return type.attach === attachesNothing || abilities.attaches.includes(type.attach);
}

function requireGpuType(
  catalog: Catalog,
  abilities: Pick<PlacingAbilities, 'attaches'>,
  name: string,
): GpuType {
  const found = findGpuType(catalog, name);
  if (found && canAttach(found, abilities)) return found;
  const usable = catalog.gpuTypes.filter((type) => canAttach(type, abilities));
  const names = usable.map((type) => type.name).join(', ') || 'none now';
  const shown = `"${shorten(name)}"`;
  if (!found) throw refusal('gpu_type', shown, `this service has: ${names}`);
  throw refusal('gpu_type', shown, `this host cannot attach that; it has: ${names}`);
}

function requireSpec(catalog: Catalog, gpuType: GpuType, wanted: WantedPlacement): Spec {
  const specs = catalog.specs.filter(
    (spec) => spec.gpuType === gpuType.name && spec.gpuCount === wanted.numGpus,
  );
  const found = specs.find((spec) => spec.mode === wanted.mode);
  if (found) return found;
  const offered = specs.map((spec) => spec.mode).join(', ');
  const ofWhich = `${wanted.numGpus} of "${gpuType.name}"`;
  throw refusal(
    'mode',
    `"${shorten(wanted.mode)}"`,
    `for ${ofWhich} it must be one of: ${offered}`,
  );
}

function checkRange(field: string, value: number, spec: Spec, { min, max }: Range): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw refusal(field, value, `${ofSpec(spec)} it must be from ${min} to ${max}`);
}

const refusal = (field: string, value: string | number, why: string) =>
  invalidRequest(`The field "${field}" is ${value}, but ${why}.`);

const ofSpec = (spec: Spec): string => `for ${spec.key}`;

/** `from 1 to 64` where every number between is allowed, else all of them. */
function describeNumbers(numbers: readonly number[]): string {
  const [first = 0] = numbers;
  const last = numbers.at(-1) ?? first;
  const gapless = last - first === numbers.length - 1;
  return gapless && numbers.length > 3
    ? `from ${first} to ${last}`
    : `one of: ${numbers.join(', ')}`;
}
