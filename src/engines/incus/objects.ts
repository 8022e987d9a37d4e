/** Instances as Incus shows them, and the deadlines of calls about them. */

import { EngineError } from '../engine.ts';
import type { CallOptions, IncusClient } from './client.ts';
import { isIncusError } from './incus-error.ts';
import { berthKeys, type Devices, type GuestType, type Settings } from './instance-config.ts';
import { instancePath, type Place, refOfName } from './names.ts';

export interface InstanceObject {
  readonly name: string;
  readonly project: string;
  readonly type: GuestType;
  readonly architecture: string;
  /** `Error`: the member of the cluster that has it does not answer. */
  readonly status: string;
  /** The member; `none` without a cluster. */
  readonly location: string;
  /** When it was started last. */
  readonly last_used_at: string;
  readonly config: Settings;
  readonly devices: Devices;
}

/** In a list there is but the name of what is on a member that Incus knows to be away. */
export type ListedObject = Omit<InstanceObject, 'config' | 'devices'> & {
  readonly config: Settings | null;
  readonly devices: Devices | null;
};

/** A member that is cut off makes Incus wait for 20 s: nobody waits for that with it. */
export const readMs = 4_000;
export const changeMs = 10_000;
/** The first copy of an image on a host unpacks it. */
export const copyMs = 120_000;
export const startMs = 60_000;

/** The object; undefined when there is none of that name. */
export async function find(client: IncusClient, place: Place): Promise<InstanceObject | undefined> {
  const options = { project: place.project, timeoutMs: readMs };
  try {
    return await client.get<InstanceObject>(instancePath(place), options);
  } catch (error) {
    if (isIncusError(error, 'not_found')) return undefined;
    throw error;
  }
}

export const notThere = (): EngineError =>
  new EngineError('not_running', 'The engine holds no such instance.');

export const isRunning = ({ status }: InstanceObject): boolean =>
  status !== 'Stopped' && status !== 'Frozen' && status !== 'Error';

/** A copy that an operator made has all of our keys and another name, and may have been given the name of another one. */
export function isOurs({ name, config }: Pick<InstanceObject, 'name' | 'config'>): boolean {
  const named = refOfName(name);
  const { [berthKeys.kind]: kind, [berthKeys.ref]: ref } = config;
  return named !== undefined && named.kind === kind && named.ref === ref;
}

export const placeOf = ({ name, project }: InstanceObject): Place => ({ name, project });

/** Options of a call about this place. */
export const at = (place: Place, options: CallOptions = {}): CallOptions => ({
  timeoutMs: changeMs,
  ...options,
  project: place.project,
});
