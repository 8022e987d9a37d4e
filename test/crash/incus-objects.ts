/** What Incus itself says of an instance of a service, past the service. */

import type { House } from '../support/house.ts';
import type { IncusPlace } from '../support/incus.ts';

export interface IncusObject {
  readonly name: string;
  readonly project: string;
  readonly status: string;
  readonly config: Readonly<Record<string, string>>;
}

export function placeOf({ service }: House): IncusPlace {
  if (service.place === undefined) throw new Error('This service does not run on Incus.');
  return service.place;
}

export const instancePath = (uuid: string): string => `/1.0/instances/berth-i-${uuid}`;
export const holderPath = (snapshotId: string): string => `/1.0/instances/berth-s-${snapshotId}`;

export function incusObject(house: House, uuid: string): Promise<IncusObject> {
  const { client, project } = placeOf(house);
  return client.get<IncusObject>(instancePath(uuid), { project });
}

/** Of the guest's first process, on the host: another one after each start. */
export async function guestPid(house: House, uuid: string): Promise<number> {
  const { client, project } = placeOf(house);
  return (await client.get<{ pid: number }>(`${instancePath(uuid)}/state`, { project })).pid;
}
