/** An instance's ports, in terms of what Incus shows of it. */

import { type Endpoint, EngineError, type EngineRef, type MachineSpec } from '../engine.ts';
import type { Guest } from './forwards.ts';
import { guestAddress } from './guest-address.ts';
import { type InstanceObject, isRunning, placeOf } from './objects.ts';
import type { Parts } from './parts.ts';

/** All of them, or none and an error that names the one. */
export async function publish(
  parts: Parts,
  machine: MachineSpec,
  object: InstanceObject,
): Promise<void> {
  await parts.forwards.set(guestOf(parts, object, addressIn(object)), machine);
}

/** Before it starts: SSH, and of the other ports those that are free. Where SSH answers then. */
export async function publishFree(
  parts: Parts,
  machine: MachineSpec,
  object: InstanceObject,
): Promise<Endpoint> {
  const bridge = await parts.bridge();
  const address = guestAddress(bridge, machine.sshPort, parts.options.sshPorts);
  await parts.forwards.setWhatIsFree(guestOf(parts, object, address), machine);
  const endpoint = sshEndpoint(parts, machine.ref);
  if (endpoint) return endpoint;
  throw new EngineError('failed', 'The SSH port of the instance could not be published.');
}

function guestOf({ overview }: Parts, object: InstanceObject, address: string): Guest {
  return {
    ref: object.config['user.berth.ref'] ?? '',
    address,
    member: overview.last.clustered ? object.location : undefined,
    place: isRunning(object) ? placeOf(object) : undefined,
  };
}

/** A guest has its address for as long as it runs. */
export const addressIn = ({ devices }: InstanceObject): string =>
  devices.eth0?.['ipv4.address'] ?? '';

export const sshEndpoint = ({ forwards }: Parts, ref: EngineRef): Endpoint | undefined =>
  forwards.of(ref)?.endpoint;

export const publishedPorts = ({ forwards }: Parts, ref: EngineRef): readonly number[] =>
  (forwards.of(ref)?.httpPorts ?? []).toSorted((one, other) => one - other);
