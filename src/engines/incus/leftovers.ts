/** What Berths have in Incus, this one or others: what an operator is told to look at when it is nobody's any more. */

import type { IncusClient } from './client.ts';
import { type Place, refOfName } from './names.ts';
import { readMs } from './objects.ts';
import type { IncusOptions } from './options.ts';

export interface Held extends Place {
  readonly kind: string;
  readonly ref: string;
}

/** Instances and snapshots by their names alone, where this Berth would have its own. */
export async function listHeld(client: IncusClient, options: IncusOptions): Promise<Held[]> {
  const where = options.projectPerOrganization ? { 'all-projects': 'true' } : {};
  const query = { recursion: '1', ...where };
  const all = await client.get<Place[]>('/1.0/instances', { query, timeoutMs: readMs });
  return all.flatMap(({ name, project }) => {
    const ours = refOfName(name);
    return ours ? [{ name, project, ...ours }] : [];
  });
}

/** A command for each project. */
export function deletionCommands(held: readonly Place[]): string[] {
  const projects = Map.groupBy(held, ({ project }) => project);
  return [...projects].map(([project, places]) => {
    const where = project === 'default' ? '' : `--project ${project} `;
    return `incus ${where}delete --force ${places.map(({ name }) => name).join(' ')}`;
  });
}
