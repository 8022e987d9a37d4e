/**
 * Changes an instance, running or stopped, all or nothing. What can be put back comes first: ports, then CPU, memory
 * and cards. The disk comes last, because it is never made smaller: below what is in it, Incus would refuse every
 * further change of the instance, even a larger disk.
 */

import { EngineError, type MachineSpec } from '../engine.ts';
import { requireProcessors } from './creating.ts';
import { isIncusError } from './incus-error.ts';
import {
  type Devices,
  deviceChange,
  diskSizeOf,
  gpuDevices,
  type Settings,
  settingsChange,
  sizesOf,
} from './instance-config.ts';
import { instancePath } from './names.ts';
import { at, find, type InstanceObject, isRunning, notThere, placeOf } from './objects.ts';
import { type Parts, settle } from './parts.ts';
import { publish, publishedPorts, sshEndpoint } from './publishing.ts';
import { withRoom } from './rescue.ts';

interface Change {
  readonly config?: Settings;
  readonly devices?: Devices;
}

export async function configureInstance(parts: Parts, machine: MachineSpec): Promise<void> {
  const place = await parts.places.instance(machine.ref);
  const object = place && (await find(parts.client, place));
  if (!object) throw notThere();
  await using changed = new AsyncDisposableStack();
  await changePorts(parts, machine, object, changed);
  await changeSizes(parts, machine, object, changed);
  await growDisk(parts, machine, object);
  // From here on nothing is put back.
  changed.move();
}

async function changePorts(
  parts: Parts,
  machine: MachineSpec,
  object: InstanceObject,
  changed: AsyncDisposableStack,
): Promise<void> {
  // What we stop has no ports any more; what others stop keeps them, for they may start it in the next moment.
  if (!isRunning(object) && !sshEndpoint(parts, machine.ref)) return;
  const before = { ...machine, httpPorts: publishedPorts(parts, machine.ref) };
  await publish(parts, machine, object);
  putBack(parts, machine, changed, () => publish(parts, before, object));
}

async function changeSizes(
  parts: Parts,
  machine: MachineSpec,
  object: InstanceObject,
  changed: AsyncDisposableStack,
): Promise<void> {
  const config = settingsChange(object.config, sizesOf(machine));
  const devices = deviceChange(cardsOf(object.devices), gpuDevices(machine.gpus));
  if (Object.keys({ ...config, ...devices }).length === 0) return;
  requireProcessors(parts, machine, object.type);
  const before = {
    config: inverse(config, object.config, ''),
    devices: inverse(devices, object.devices, { type: 'none' }),
  };
  await patch(parts, object, { config, devices }).catch((error: unknown) => {
    throw isIncusError(error, 'refused') ? refusal(error, object) : error;
  });
  putBack(parts, machine, changed, () => patch(parts, object, before));
}

const cardsOf = (devices: Devices): Devices =>
  Object.fromEntries(Object.entries(devices).filter(([name]) => /^gpu\d+$/.test(name)));

/** The values from before a change; `none` for what was not there. */
const inverse = <T>(change: object, before: Readonly<Record<string, T>>, none: T) =>
  Object.fromEntries(Object.keys(change).map((key): [string, T] => [key, before[key] ?? none]));

function refusal(cause: Error, object: InstanceObject): EngineError {
  const options = { cause, detail: cause.message };
  if (/\bmonitor\b/i.test(cause.message)) {
    const message = 'The instance is just being restarted. Try again in a minute.';
    return new EngineError('timeout', message, options);
  }
  if (object.type === 'virtual-machine' && isRunning(object)) {
    const message =
      'A virtual machine takes more memory than it was started with, and other cards, only while it is stopped. Stop the instance, then try again.';
    return new EngineError('running', message, options);
  }
  const message =
    'The new sizes were refused: less memory than is in use, or a card that cannot be changed now. Stop the instance, then try again.';
  return new EngineError('failed', message, options);
}

/** A smaller disk than there is stays as it is: the rest of the change is not held up by it. */
async function growDisk(parts: Parts, machine: MachineSpec, object: InstanceObject): Promise<void> {
  const { root } = object.devices;
  const size = diskSizeOf(object.devices);
  if (root === undefined || size === undefined || size === machine.diskSizeGb) return;
  if (size > machine.diskSizeGb) {
    const fields = { ref: machine.ref, sizeGb: size, wantedGb: machine.diskSizeGb };
    return parts.options.log('warn', 'a disk is larger than it should be and stays so', fields);
  }
  const larger = { ...root, size: `${machine.diskSizeGb}GB` };
  const grow = () => patch(parts, object, { devices: { root: larger } });
  await withRoom(parts.options, object, grow, 'has a new limit');
}

async function patch(parts: Parts, object: InstanceObject, change: Change): Promise<void> {
  const place = placeOf(object);
  await settle(
    parts,
    place,
    () => parts.client.change('PATCH', instancePath(place), change, at(place)),
    (now) => now !== undefined && holds(now, change),
  );
}

const holds = (object: InstanceObject, { config = {}, devices = {} }: Change): boolean =>
  Object.keys(settingsChange(object.config, config)).length === 0 &&
  Object.keys(deviceChange({}, devices)).every(
    (name) => JSON.stringify(object.devices[name]) === JSON.stringify(devices[name]),
  );

/** When what comes after fails; should that fail as well, the service sees the difference and tries again. */
function putBack(
  { options }: Parts,
  { ref }: MachineSpec,
  changed: AsyncDisposableStack,
  work: () => Promise<void>,
): void {
  changed.defer(() =>
    work().catch((error: unknown) => {
      options.log('warn', 'a change could not be put back', { ref, err: error });
    }),
  );
}
