/**
 * Makes instances and takes them away.
 *
 * Incus does not clear up after itself: killed in the middle it leaves an instance that has a name and no disk, or one
 * that is complete and was never acknowledged. Neither can be told from the other, so whatever has never started is
 * made anew.
 */

import type { AuthorizedKey } from '../../domain/authorized-keys.ts';
import { type DiskSource, EngineError, type MachineSpec } from '../engine.ts';
import { asEngineError } from './failures.ts';
import { guestAddress, guestNic } from './guest-address.ts';
import { isIncusError } from './incus-error.ts';
import {
  bodyFromHolder,
  bodyFromTemplate,
  diskSizeOf,
  type GuestType,
  type InstanceBody,
  isReady,
  type Surroundings,
  stateChange,
} from './instance-config.ts';
import { instancePath, type Place } from './names.ts';
import { at, copyMs, find, type InstanceObject, isOurs, isRunning, placeOf } from './objects.ts';
import { type Parts, settle, statePath } from './parts.ts';
import { hostDown } from './places.ts';
import { isNoDisk, removeEmptyFolder } from './rescue.ts';

const failed = 'The instance could not be created.';

export async function createInstance(
  parts: Parts,
  machine: MachineSpec,
  source: DiskSource,
  keys: readonly AuthorizedKey[],
): Promise<void> {
  const { client, members, overview, places } = parts;
  const place = await places.forNew(machine.ref, machine.orgId);
  const object = await find(client, place);
  if (object && (isReady(object.config) || isRunning(object))) return;
  if (object) await removeInstance(parts, object);
  const { body, near } = await planOf(parts, machine, source, keys);
  // A copy on the host that has the disk is a matter of milliseconds.
  const target = overview.last.clustered ? (machine.host ?? near) : undefined;
  if (target !== undefined && members.lost.has(target)) throw hostDown(target);
  try {
    await client.change('POST', '/1.0/instances', body, at(place, { target, operationMs: copyMs }));
  } catch (error) {
    if (!overview.sharesIdsAfter(error)) throw await afterFailure(parts, place, error);
    await createInstance(parts, machine, source, keys);
  }
}

interface Plan {
  readonly body: InstanceBody;
  /** The host that has its disk already. */
  readonly near?: string;
}

async function planOf(
  parts: Parts,
  machine: MachineSpec,
  source: DiskSource,
  keys: readonly AuthorizedKey[],
): Promise<Plan> {
  if (source.kind === 'template') {
    const type = await typeOf(parts, source.template);
    const around = await surroundings(parts, machine, type);
    return { body: bodyFromTemplate(machine, source.template, around, keys) };
  }
  const place = await parts.places.snapshot(source.snapshotRef);
  const holder = place && (await find(parts.client, place));
  if (!holder || !isReady(holder.config))
    throw new EngineError('failed', 'The snapshot is gone. Choose another one.');
  requireRoom(machine, holder);
  const around = await surroundings(parts, machine, holder.type);
  return { body: bodyFromHolder(machine, holder, around, keys), near: holder.location };
}

/** Incus would take a disk that is too small for its content, and then refuse every change of the instance. */
function requireRoom(machine: MachineSpec, holder: InstanceObject): void {
  const least = diskSizeOf(holder.devices);
  if (least === undefined || machine.diskSizeGb >= least) return;
  throw new EngineError('failed', `The snapshot needs a disk of at least ${least} GB.`);
}

async function typeOf({ overview }: Parts, template: string): Promise<GuestType> {
  if (!overview.last.templates.has(template)) await overview.refresh();
  const type = overview.last.templates.get(template);
  if (type !== undefined) return type;
  throw new EngineError(
    'failed',
    `There is no image for the template "${template}". The operator makes one with: berth admin image build`,
  );
}

export async function surroundings(
  { bridge, options, overview }: Parts,
  machine: MachineSpec,
  type: GuestType,
): Promise<Surroundings> {
  const { pool, nvidiaRuntime } = options;
  requireProcessors({ overview }, machine, type);
  const { limitsDisks } = overview.last;
  const network = await bridge();
  const nic = guestNic(network, guestAddress(network, machine.sshPort, options.sshPorts));
  return { pool, nic, type, nvidiaRuntime, limitsDisks, isolated: overview.isolatesIds };
}

/** A container with more than there are has them all; a virtual machine would not start. */
export function requireProcessors(
  { overview }: Pick<Parts, 'overview'>,
  { cpuCores, host }: MachineSpec,
  type: GuestType,
): void {
  const { hosts } = overview.last;
  const its = hosts.length === 1 ? hosts[0] : hosts.find(({ name }) => name === host);
  const most = its?.cpuCores ?? 0;
  if (type !== 'virtual-machine' || most === 0 || cpuCores <= most) return;
  throw new EngineError(
    'no_capacity',
    `A virtual machine has at most as many processors as its host, and that has ${most}, not ${cpuCores}.`,
  );
}

/** What is left of a failed attempt goes; after one of unknown outcome it may still be at work, and goes next time. */
async function afterFailure(parts: Parts, place: Place, error: unknown): Promise<EngineError> {
  if (isIncusError(error, 'refused', 'not_found', 'no_space')) {
    const rest = await find(parts.client, place).catch(() => undefined);
    if (rest) await removeInstance(parts, rest).catch(() => undefined);
  }
  if (!isIncusError(error, 'no_space')) return asEngineError(error, failed);
  return new EngineError(
    'no_space',
    'The disk of the host is full. Free some space on it, or use another host.',
    { detail: error.message, cause: error },
  );
}

/** What is none of ours any more, or never was, is left to the operator. */
export async function removeOurs(parts: Parts, object: InstanceObject): Promise<void> {
  if (isOurs(object)) return removeInstance(parts, object);
  const { name, project } = object;
  parts.options.log('warn', 'what has the name of ours is none of ours, and is left', {
    name,
    project,
  });
}

/** Ends it if it runs, and removes it with its disk. */
export async function removeInstance(parts: Parts, object: InstanceObject): Promise<void> {
  const place = placeOf(object);
  if (object.status !== 'Stopped') await stopAtOnce(parts, place);
  const remove = () => parts.client.change('DELETE', instancePath(place), undefined, at(place));
  await settle(
    parts,
    place,
    () =>
      remove().catch(async (error: unknown) => {
        if (!isNoDisk(parts.options, object, error)) throw error;
        await removeEmptyFolder(parts.options, object, error);
        await remove();
      }),
    (left) => left === undefined,
  );
  parts.places.forget(place);
}

export async function stopAtOnce(parts: Parts, place: Place): Promise<void> {
  const body = stateChange('stop', { force: true, timeoutSeconds: 30 });
  const options = at(place, { operationMs: 40_000 });
  await settle(
    parts,
    place,
    () => parts.client.change('PUT', statePath(place), body, options),
    (object) => object === undefined || object.status === 'Stopped',
  );
}
