/** What things of ours are called in Incus. Names say what a thing is; who owns it is in its `user.berth.*` keys. */

import { EngineError, type EngineRef } from '../engine.ts';

/** Where Incus has an instance: names are unique within a project. */
export interface Place {
  readonly name: string;
  readonly project: string;
}

/** One string for it. */
export const keyOf = ({ project, name }: Place): string => `${project}/${name}`;

/** Refs are Berth's own; a foreign one would be a way out of the path that it becomes a part of. */
function requireRef(ref: EngineRef): EngineRef {
  if (/^[A-Za-z0-9](?:[A-Za-z0-9-]{0,52}[A-Za-z0-9])?$/.test(ref)) return ref;
  throw new EngineError('failed', 'This is not the name of an instance or snapshot.');
}

export const instanceName = (ref: EngineRef): string => `berth-i-${requireRef(ref)}`;

/** The stopped instance that holds a snapshot's disk. */
export const snapshotName = (ref: EngineRef): string => `berth-s-${requireRef(ref)}`;

/** What is called so, by the name alone; undefined for what is not ours. */
export function refOfName(name: string): { kind: string; ref: EngineRef } | undefined {
  const [, letter, ref = ''] = /^berth-([is])-(.+)$/.exec(name) ?? [];
  return letter === undefined ? undefined : { kind: letter === 'i' ? 'instance' : 'snapshot', ref };
}

export const imageAlias = (template: string): string => `berth-${template}`;

export const templateOf = (alias: string): string | undefined =>
  alias.startsWith('berth-') ? alias.slice('berth-'.length) : undefined;

/**
 * The project that things of this organization are in. Sockets of a virtual machine stand in a folder that is named after
 * project and instance, and Linux takes 107 characters for the path of one (unix(7)): a part of the id has to do.
 */
export function projectOf(
  options: { readonly project: string; readonly projectPerOrganization: boolean },
  orgId: string,
): string {
  if (!options.projectPerOrganization) return options.project;
  return `berth-${requireRef(orgId).replaceAll('-', '').slice(0, 14)}`;
}

/** Operators may have things of the same names in projects of their own, as copies. */
export const isProjectOfOurs = (
  options: { readonly project: string; readonly projectPerOrganization: boolean },
  project: string,
): boolean =>
  project === options.project ||
  (options.projectPerOrganization && /^berth-[0-9a-f]{14}$/.test(project));

export const instancePath = ({ name }: Place): string => `/1.0/instances/${name}`;
