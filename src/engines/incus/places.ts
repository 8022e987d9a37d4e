/**
 * Which project an instance or a snapshot is in. With one project for all that is no question; with one for each
 * organization it is looked up once, because nothing of ours ever moves or has its name used again.
 */

import { EngineError, type EngineRef } from '../engine.ts';
import type { IncusClient } from './client.ts';
import { isIncusError } from './incus-error.ts';
import type { Members } from './members.ts';
import {
  instanceName,
  isProjectOfOurs,
  type Place,
  projectOf,
  refOfName,
  snapshotName,
} from './names.ts';
import { changeMs, type InstanceObject, readMs } from './objects.ts';
import type { IncusOptions } from './options.ts';

/** A fence of its own around each organization: networks and images are shared, the host's files are out of reach. */
const projectConfig = {
  'features.images': 'false',
  'features.networks': 'false',
  'features.profiles': 'true',
  'features.storage.volumes': 'true',
  'features.storage.buckets': 'true',
  restricted: 'true',
  'restricted.devices.gpu': 'allow',
};

/** Whose a project is: its name has not the whole id. */
const ownerKey = 'user.berth.organization';

export class Places {
  readonly #client: IncusClient;
  readonly #options: IncusOptions;
  readonly #projects = new Map<string, string>();
  /** Projects, and whose they are. */
  readonly #made = new Map<string, string>();
  readonly #members: Pick<Members, 'lost'>;
  /** What is on which host, as of the last look. */
  #hosts: ReadonlyMap<string, string> = new Map();

  constructor(client: IncusClient, members: Pick<Members, 'lost'>, options: IncusOptions) {
    this.#client = client;
    this.#members = members;
    this.#options = options;
  }

  /** The query of a call that is to list everything of ours. */
  get everywhere(): Readonly<Record<string, string>> {
    return this.#options.projectPerOrganization ? { 'all-projects': 'true' } : {};
  }

  /** @throws EngineError `unavailable` when it is on a host that does not answer. */
  instance(ref: EngineRef): Promise<Place | undefined> {
    return this.#find(instanceName(ref));
  }

  snapshot(ref: EngineRef): Promise<Place | undefined> {
    return this.#find(snapshotName(ref));
  }

  /** Where an instance of this organization is to be; its project is there when this resolves. */
  async forNew(ref: EngineRef, orgId: string): Promise<Place> {
    const place = { name: instanceName(ref), project: projectOf(this.#options, orgId) };
    if (this.#options.projectPerOrganization) await this.#ensureProject(place.project, orgId);
    this.note(place);
    return place;
  }

  note({ name, project }: Place): void {
    this.#projects.set(name, project);
  }

  forget({ name }: Place): void {
    this.#projects.delete(name);
  }

  /** After each look at everything there is. */
  noteAll(objects: readonly InstanceObject[]): void {
    if (this.#options.projectPerOrganization) for (const object of objects) this.note(object);
    this.#hosts = new Map(objects.map(({ name, location }) => [name, location]));
  }

  /** The host that has it, if that does not answer. */
  hostLost(name: string): string | undefined {
    const host = this.#hosts.get(name);
    return host !== undefined && this.#members.lost.has(host) ? host : undefined;
  }

  async #find(name: string): Promise<Place | undefined> {
    const host = this.hostLost(name);
    if (host !== undefined) throw hostDown(host);
    if (!this.#options.projectPerOrganization) return { name, project: this.#options.project };
    if (!this.#projects.has(name)) await this.#lookUp();
    const project = this.#projects.get(name);
    return project === undefined ? undefined : { name, project };
  }

  async #lookUp(): Promise<void> {
    for (const place of await this.list(readMs)) this.note(place);
  }

  /** The names of all there is. No host is asked for that, so none keeps it waiting. */
  async list(timeoutMs: number): Promise<Place[]> {
    const query = this.everywhere;
    const paths = await this.#client.get<string[]>('/1.0/instances', { query, timeoutMs });
    const places = paths.map((path) => {
      const { pathname, searchParams } = new URL(path, 'http://incus');
      const name = pathname.slice(pathname.lastIndexOf('/') + 1);
      return { name, project: searchParams.get('project') ?? 'default' };
    });
    return places.filter((place) => this.mayBeOurs(place));
  }

  /** By where it is and what it is called. */
  mayBeOurs({ name, project }: Place): boolean {
    return refOfName(name) !== undefined && isProjectOfOurs(this.#options, project);
  }

  async #ensureProject(name: string, orgId: string): Promise<void> {
    if (this.#made.get(name) === orgId) return;
    const config = { ...projectConfig, [ownerKey]: orgId };
    const body = { name, description: 'An organization of Berth', config };
    const options = { timeoutMs: readMs };
    const found = await this.#client
      .get<{ config: Record<string, string> }>(`/1.0/projects/${name}`, options)
      .catch((error: unknown) => {
        if (!isIncusError(error, 'not_found')) throw error;
      });
    if (found && (found.config[ownerKey] ?? orgId) !== orgId)
      throw new EngineError('failed', 'Another organization has the project of this one.');
    if (!found) {
      await this.#client
        .change('POST', '/1.0/projects', body, { timeoutMs: changeMs })
        .catch((error: unknown) => {
          if (!isIncusError(error, 'busy')) throw error;
        });
    }
    this.#made.set(name, orgId);
  }
}

export const hostDown = (host: string): EngineError =>
  new EngineError(
    'unavailable',
    'The host of this instance or snapshot cannot be reached. Try again when it is back.',
    { detail: `The host is ${host}.` },
  );
