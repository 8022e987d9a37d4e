/**
 * Starts an instance and waits until its sshd answers.
 *
 * The guest's boot is most of the time, so all else is done beside it: its ports are published before, and its first
 * keys are added by exec as soon as there is a process in it, long before sshd.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Endpoint, EngineError, type MachineSpec } from '../engine.ts';
import { waitForBanner } from './banner.ts';
import { stopAtOnce, surroundings } from './creating.ts';
import { isLocal } from './endpoint.ts';
import { guestNames } from './guest-address.ts';
import { IncusError } from './incus-error.ts';
import {
  berthKeys,
  type Device,
  deviceChange,
  fencesOf,
  firstStartDone,
  type GuestType,
  gpuDevices,
  isReady,
  readKeys,
  settingsChange,
  sizesOf,
  stateChange,
} from './instance-config.ts';
import { instancePath, type Place } from './names.ts';
import { at, find, type InstanceObject, isRunning, notThere, placeOf, startMs } from './objects.ts';
import { type Parts, settle, statePath } from './parts.ts';
import { addressIn, publishFree } from './publishing.ts';
import { removeLeftPort, withRoom } from './rescue.ts';
import { letOthersFinish } from './under-way.ts';

const bootMs = { container: 60_000, 'virtual-machine': 180_000 };
/** A virtual machine is long in starting, and every question to its agent is work for the host. */
const keyPauseMs = { container: 25, 'virtual-machine': 500 };
/** As long as nobody wonders about. */
const tellAfterMs = { container: 10_000, 'virtual-machine': 60_000 };
const checkEveryMs = 1_000;
/**
 * The firmware of a virtual machine may reset it when it starts for the first time, as a reboot does: Incus then ends
 * it and starts it again.
 */
const resetMs = { container: 0, 'virtual-machine': 15_000 };

export async function startInstance(parts: Parts, machine: MachineSpec): Promise<Endpoint> {
  const place = await parts.places.instance(machine.ref);
  const object = place && (await findInPeace(parts, place));
  if (!object) throw notThere();
  const { nic } = await surroundings(parts, machine, object.type);
  const running = await stopIfElsewhere(parts, object, nic);
  const endpoint = await publishFree(parts, machine, object);
  if (!running) await boot(parts, machine, object, nic);
  await Promise.all([
    finishFirstStart(parts, object),
    untilItAnswers(parts, object, sshOf(parts, nic, endpoint)),
  ]);
  return endpoint;
}

async function findInPeace({ client }: Parts, place: Place): Promise<InstanceObject | undefined> {
  const object = await find(client, place);
  // Nobody else knows of one that was never started.
  if (!object || isRunning(object) || !isReady(object.config)) return object;
  await letOthersFinish(client, place);
  return find(client, place);
}

/** A guest has its address for as long as it runs; with another SSH port it needs another one. */
async function stopIfElsewhere(
  parts: Parts,
  object: InstanceObject,
  nic: Device,
): Promise<boolean> {
  if (!isRunning(object)) return false;
  if (addressIn(object) === nic['ipv4.address']) return true;
  await stopAtOnce(parts, placeOf(object));
  return false;
}

async function boot(
  parts: Parts,
  machine: MachineSpec,
  object: InstanceObject,
  nic: Device,
): Promise<void> {
  const place = placeOf(object);
  // What a crash of Incus in the middle of a copy left frozen.
  const body = stateChange(object.status === 'Frozen' ? 'unfreeze' : 'start');
  const options = at(place, { operationMs: startMs });
  const startWith = async (card: Device) => {
    if (object.status !== 'Frozen') await makeAsWanted(parts, machine, object, card);
    await settle(
      parts,
      place,
      () => parts.client.change('PUT', statePath(place), body, options),
      (now) => now !== undefined && isRunning(now),
    );
  };
  const isUp = async () => {
    const now = await find(parts.client, place);
    return now !== undefined && isRunning(now);
  };
  const start = () => startWithSomePort(parts, nic, { startWith, isUp });
  try {
    await withRoom(parts.options, object, start, 'limit again');
  } catch (error) {
    await parts.forwards.withdraw(machine.ref).catch(() => undefined);
    throw error;
  }
}

interface Starting {
  readonly startWith: (nic: Device) => Promise<void>;
  readonly isUp: () => Promise<boolean>;
}

/** Of a guest that ended while Incus was away, its port stays on the bridge for ever, and no other can have its name. */
async function startWithSomePort(
  { options }: Parts,
  nic: Device,
  { startWith, isUp }: Starting,
): Promise<void> {
  const { ports } = guestNames(nic['ipv4.address'] ?? '');
  const triedAgain = new Set<string>();
  const left = [...ports];
  let failure: unknown;
  for (let port = left.shift(); port !== undefined; port = left.shift()) {
    try {
      return await startWith({ ...nic, host_name: port });
    } catch (error) {
      failure = error;
      if (!isPortLeft(error)) break;
      const isFree = await removeLeftPort(options, port);
      if (isFree && !triedAgain.has(port)) left.unshift(port);
      triedAgain.add(port);
      // Then the port was of somebody's start at the same moment.
      if (await isUp()) return;
    }
  }
  throw failure;
}

const isPortLeft = (error: unknown): boolean =>
  error instanceof IncusError && /\bip link add\b.*File exists/s.test(error.message);

/** What could not be changed while it ran, or was changed by others. */
async function makeAsWanted(
  { client }: Parts,
  machine: MachineSpec,
  object: InstanceObject,
  nic: Device,
): Promise<void> {
  const { root: _root, ...current } = object.devices;
  const devices = deviceChange(current, { eth0: nic, ...gpuDevices(machine.gpus) });
  const wanted = { ...sizesOf(machine), ...fencesOf(object.type, object.config) };
  const config = settingsChange(object.config, wanted);
  if (Object.keys({ ...devices, ...config }).length === 0) return;
  const place = placeOf(object);
  await client.change('PATCH', instancePath(place), { config, devices }, at(place));
}

async function finishFirstStart(
  { client, keys, options }: Parts,
  object: InstanceObject,
): Promise<void> {
  if (isReady(object.config)) return;
  const place = placeOf(object);
  for (const key of readKeys(object.config[berthKeys.firstKeys])) {
    const tell = (reason: string) =>
      options.log('info', 'a guest does not take its first key yet', { place, reason });
    await addWhenUp(() => keys.add(place, key), object.type, tell);
  }
  await client.change('PATCH', instancePath(place), firstStartDone, at(place));
}

/** The guest's first process is there before commands can be run beside it. */
async function addWhenUp(
  add: () => Promise<unknown>,
  type: GuestType,
  tell: (reason: string) => void,
): Promise<void> {
  const startedAt = performance.now();
  const giveUpAt = startedAt + bootMs[type];
  let told: string | undefined;
  for (;;) {
    try {
      await add();
      return;
    } catch (error) {
      const now = performance.now();
      if (!mayPass(error) || now > giveUpAt) throw asSnapshotProblem(error);
      const reason = String(error);
      if (reason !== told && now - startedAt > tellAfterMs[type]) {
        tell(reason);
        told = reason;
      }
    }
    await sleep(keyPauseMs[type]);
  }
}

const mayPass = (error: unknown): boolean =>
  error instanceof EngineError && ['failed', 'not_running', 'timeout'].includes(error.kind);

/** What is in the way of the first key came with the disk: nobody has logged in yet. */
function asSnapshotProblem(error: unknown): unknown {
  if (!(error instanceof EngineError) || error.kind !== 'guest_conflict') return error;
  const what = error.message.replace('then try again', 'then make a new snapshot of it');
  const message = `No key can be added to what the snapshot holds. ${what}`;
  return new EngineError('guest_conflict', message, { cause: error });
}

/** On the machine that Incus runs on, the guest itself can be asked; from elsewhere, through the published port. */
function sshOf({ options, overview }: Parts, nic: Device, endpoint: Endpoint): Endpoint {
  const ip = nic['ipv4.address'];
  return isLocal(options) && !overview.last.clustered && ip !== undefined
    ? { ip, port: 22 }
    : endpoint;
}

async function untilItAnswers(
  { client }: Parts,
  object: InstanceObject,
  endpoint: Endpoint,
): Promise<void> {
  const place = placeOf(object);
  let seenAt = performance.now();
  const check = async () => {
    const now = await find(client, place);
    const isUp = now !== undefined && isRunning(now);
    if (isUp) seenAt = performance.now();
    if (isUp || (now && performance.now() - seenAt < resetMs[object.type])) return;
    throw new EngineError('failed', 'The instance ended while it was started.');
  };
  const timeoutMs = bootMs[object.type];
  if (await waitForBanner(endpoint, { timeoutMs, check, checkEveryMs })) return;
  throw new EngineError('timeout', 'The instance runs, but its SSH server does not answer.');
}
