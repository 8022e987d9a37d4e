/**
 * Where a new instance goes, and what is short where it cannot. Hosts, what they hold and which GPUs are taken come in
 * as data; nothing here asks anybody.
 */

import { attachesNothing, type GpuType } from './catalog.ts';
import { AppError, noCapacity } from './errors.ts';

export interface Device {
  readonly attach: string;
  readonly pci: string;
  readonly migUuid?: string;
}

export interface Host {
  readonly name: string;
  readonly online: boolean;
  readonly cpuCores: number;
  readonly memoryGb: number;
  readonly diskGb: number;
  readonly gpus: readonly Device[];
}

export interface Amounts {
  readonly cpuCores: number;
  readonly memoryGb: number;
  readonly diskGb: number;
}

/** A host, what it is asked to hold already, and which of its GPUs somebody has. */
export interface Room {
  readonly host: Host;
  readonly used: Amounts & { readonly instances: number };
  readonly taken: readonly Pick<Device, 'pci' | 'migUuid'>[];
}

/** How many times what a host has may be promised. */
export interface Overcommit {
  readonly cpu: number;
  readonly memory: number;
  readonly disk: number;
}

/** docs/operations.md says why. */
export const defaultOvercommit: Overcommit = { cpu: 4, memory: 1, disk: 1 };

/** `cpu=4,memory=1,disk=1`; what is left out is as by default. Undefined: it is not of that form. */
export function parseOvercommit(text: string): Overcommit | undefined {
  const factors = new Map<string, number>();
  for (const part of text.split(',')) {
    const match = /^\s*(cpu|memory|disk)\s*=\s*([0-9]{1,4}(?:\.[0-9]{1,3})?)\s*$/.exec(part);
    const [, name = '', digits = ''] = match ?? [];
    const factor = Number(digits);
    if (!match || factors.has(name) || factor < 0.1 || factor > 1000) return undefined;
    factors.set(name, factor);
  }
  return { ...defaultOvercommit, ...Object.fromEntries(factors) };
}

/** What is to be placed. */
export interface Wish {
  readonly amounts: Amounts;
  readonly gpuType: GpuType;
  readonly numGpus: number;
  /** The only hosts that it may be on, besides those of its GPU type; empty: any. */
  readonly hosts: readonly string[];
  /** It gets processors of its own host and no more of them, however many may be promised. */
  readonly isVirtualMachine: boolean;
}

export interface Place {
  readonly host: string;
  readonly gpus: readonly Device[];
}

/** What is asked for and not there. */
interface Lack {
  readonly what: string;
  readonly asked: number;
  readonly free: number;
}

interface Judged {
  readonly room: Room;
  readonly lacks: readonly Lack[];
  readonly gpus: readonly Device[];
}

const advice = 'Ask for less, delete instances that you no longer need, or tell the operator.';
const memoryUnit = 'GB of memory';

const adviceFor = (lacks: readonly Lack[]): string =>
  lacks.some(({ what }) => what === memoryUnit)
    ? `${advice} Memory comes with vCPUs: fewer of them need less.`
    : advice;

/**
 * Of the hosts that can be reached and have room the one with the fewest instances, then the first by name.
 * @throws AppError `no_capacity` that says what is short; `unavailable` when no host that it may be on is there now
 */
export function choosePlace(rooms: readonly Room[], overcommit: Overcommit, wish: Wish): Place {
  const allowed = rooms.filter(({ host }) => isAllowed(host, wish));
  if (allowed.length === 0)
    throw noCapacity(
      'There is no host that this may be placed on: the operator has named others in the catalog, or none is known yet.',
    );
  const open = allowed.filter(({ host }) => host.online);
  if (open.length === 0)
    throw new AppError(
      'unavailable',
      'No host that this may be placed on can be reached now. Try again in a minute, or tell the operator.',
    );
  const judged = open.map((room) => judgeRoom(room, overcommit, wish));
  const [best] = judged.filter(({ lacks }) => lacks.length === 0).toSorted(byInstancesAndName);
  if (best) return { host: best.room.host.name, gpus: best.gpus };
  const [nearest] = judged.toSorted(
    (one, other) => one.lacks.length - other.lacks.length || missing(one) - missing(other),
  );
  const lacks = nearest?.lacks ?? [];
  const where = open.length > 1 ? ' on the host with the most room' : '';
  throw noCapacity(
    `There is no room for this now: ${sayLacks(lacks, '')}${where}. ${adviceFor(lacks)}`,
  );
}

/** The same as a question. */
export function canPlace(rooms: readonly Room[], overcommit: Overcommit, wish: Wish): boolean {
  return rooms
    .filter(({ host }) => host.online && isAllowed(host, wish))
    .some((room) => judgeRoom(room, overcommit, wish).lacks.length === 0);
}

/** @throws AppError `no_capacity` when the host of an instance has no room for what is added to it */
export function requireRoom(room: Room, overcommit: Overcommit, added: Amounts): void {
  const lacks = lacksOf(room, overcommit, added);
  if (lacks.length === 0) return;
  throw noCapacity(
    `There is no room for this on the host of the instance: ${sayLacks(lacks, 'more ')}. ${adviceFor(lacks)}`,
  );
}

/**
 * The GPUs of an instance after a change of their type or number: those of the new type that it has stay.
 * @throws AppError `no_capacity`
 */
export function exchangeGpus(
  room: Room,
  held: readonly Device[],
  { gpuType, numGpus }: Pick<Wish, 'gpuType' | 'numGpus'>,
): readonly Device[] {
  const wanted = gpusWanted(gpuType, numGpus);
  if (wanted === 0) return [];
  if (!allows(gpuType.hosts, room.host.name))
    throw noCapacity(
      `The host of the instance has no "${gpuType.name}". Create another instance with that type.`,
    );
  const candidates = devicesOf(gpuType, room.host);
  const kept = candidates.filter((device) => held.some((one) => isSame(one, device)));
  const free = freeDevices(gpuType, room);
  const gpus = [...kept, ...free].slice(0, wanted);
  if (gpus.length === wanted) return gpus;
  const lack = gpuLack(gpuType, wanted, gpus.length);
  throw noCapacity(
    `There is no room for this on the host of the instance: ${sayLacks([lack], '')}. ${advice}`,
  );
}

export const isSame = (one: Device, other: Device): boolean =>
  one.pci === other.pci && one.migUuid === other.migUuid;

const gpusWanted = (type: GpuType, count: number): number =>
  type.attach === attachesNothing ? 0 : count;

const allows = (hosts: readonly string[], name: string): boolean =>
  hosts.length === 0 || hosts.includes(name);

const isAllowed = ({ name }: Host, { hosts, gpuType }: Wish): boolean =>
  allows(hosts, name) && allows(gpuType.hosts, name);

function judgeRoom(room: Room, overcommit: Overcommit, wish: Wish): Judged {
  const { gpuType, numGpus } = wish;
  const wanted = gpusWanted(gpuType, numGpus);
  const free = wanted === 0 ? [] : freeDevices(gpuType, room);
  const lacks = lacksOf(room, overcommit, wish.amounts);
  const { cpuCores } = room.host;
  if (wish.isVirtualMachine && wish.amounts.cpuCores > cpuCores)
    lacks.push({ what: 'processors of one host', asked: wish.amounts.cpuCores, free: cpuCores });
  if (free.length < wanted) lacks.push(gpuLack(gpuType, wanted, free.length));
  return { room, lacks, gpus: free.slice(0, wanted) };
}

function lacksOf({ host, used }: Room, overcommit: Overcommit, asked: Amounts): Lack[] {
  const judge = (name: keyof Amounts, factor: number, what: string): Lack => {
    const free = Math.max(0, Math.floor(host[name] * factor) - used[name]);
    return { what, asked: asked[name], free };
  };
  const all = [
    judge('cpuCores', overcommit.cpu, 'vCPUs'),
    judge('memoryGb', overcommit.memory, memoryUnit),
    judge('diskGb', overcommit.disk, 'GB of disk'),
  ];
  return all.filter((one) => one.asked > one.free);
}

/** Those that the catalog lists, as far as the host has their card; else all that are attached in the type's way. */
function devicesOf(type: GpuType, host: Host): Device[] {
  if (type.attach === attachesNothing) return [];
  if (type.devices.length === 0)
    return host.gpus.filter((one) => one.attach === type.attach).map(normalize);
  return type.devices
    .filter((listed) => listed.host === undefined || listed.host === host.name)
    .filter(({ pci }) => host.gpus.some((card) => card.pci.toLowerCase() === pci))
    .map(({ pci, migUuid }) => ({
      attach: type.attach,
      pci,
      ...(migUuid !== undefined && { migUuid }),
    }));
}

/** One way of writing each: a device that is written in two ways would be given away twice. */
const normalize = ({ attach, pci, migUuid }: Device): Device => ({
  attach,
  pci: pci.toLowerCase(),
  ...(migUuid !== undefined && { migUuid: normalizeMigUuid(migUuid) }),
});

export const normalizeMigUuid = (uuid: string): string =>
  `MIG-${uuid.replace(/^MIG-/i, '').toLowerCase()}`;

/** A card that somebody has whole has no parts left, and one of which somebody has a part is not whole. */
function freeDevices(type: GpuType, { host, taken }: Room): Device[] {
  return devicesOf(type, host).filter(
    ({ pci, migUuid }) =>
      !taken.some(
        (one) =>
          one.pci === pci &&
          (one.migUuid === undefined || migUuid === undefined || one.migUuid === migUuid),
      ),
  );
}

const gpuLack = ({ name }: GpuType, asked: number, free: number): Lack => ({
  what: `${asked === 1 ? 'GPU' : 'GPUs'} of the type "${name}"`,
  asked,
  free,
});

const sayLacks = (lacks: readonly Lack[], more: string): string =>
  `it takes ${lacks.map(({ what, asked, free }) => `${asked} ${more}${what} (${free} free)`).join(' and ')}`;

/** How far it is from fitting, as a share of what is asked for. */
const missing = ({ lacks }: Judged): number =>
  lacks.reduce((sum, { asked, free }) => sum + (asked - free) / asked, 0);

const byInstancesAndName = (one: Judged, other: Judged): number =>
  one.room.used.instances - other.room.used.instances ||
  (one.room.host.name < other.room.host.name ? -1 : 1);
