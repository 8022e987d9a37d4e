/** Everything of ours that Incus holds: by one call, and where a lost host is in its way, one by one. */

import {
  EngineError,
  type EngineInventory,
  type EngineRef,
  type InstanceFacts,
} from '../engine.ts';
import { inTime } from './in-time.ts';
import { berthKeys, isReady } from './instance-config.ts';
import { instanceName, keyOf, type Place, refOfName } from './names.ts';
import {
  find,
  type InstanceObject,
  isOurs,
  isRunning,
  type ListedObject,
  readMs,
} from './objects.ts';
import type { Parts } from './parts.ts';
import { publishedPorts, sshEndpoint } from './publishing.ts';

/** An Incus that knows of the loss lists all at once; one that does not waits for the lost. */
const patienceMs = 1_000;
const findMs = 2_000;
const findsAtOnce = 8;

interface Found {
  readonly objects: readonly InstanceObject[];
  readonly incomplete: boolean;
}

export class Inventory {
  readonly #parts: Parts;
  /** What was found last, by project and name. */
  #last: ReadonlyMap<string, InstanceObject> = new Map();
  /** Of what did not run at the last look, when it was started last; undefined before the first look. */
  #stopped: ReadonlyMap<string, string> | undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  async take(): Promise<EngineInventory> {
    const found = await this.#find();
    const { lost } = this.#parts.members;
    const now = found.objects.map((object) => [keyOf(object), object] as const);
    this.#last = new Map(found.incomplete ? [...this.#last, ...now] : now);
    this.#parts.places.noteAll([...this.#last.values()]);
    // Incus calls what it cannot ask an error, also while its leader changes. On a host that answers, that says nothing.
    const isSure = ({ status, location }: InstanceObject) =>
      status !== 'Error' || lost.has(location);
    const objects = found.objects.filter(isSure);
    const before = this.#stopped;
    const stopped = objects.filter((object) => !isRunning(object));
    this.#stopped = new Map(stopped.map((object) => [keyOf(object), object.last_used_at]));
    // An operator's own tools pause or stop a guest for a moment to copy it, to restart it, to take a snapshot back.
    const factsOf = (object: InstanceObject): InstanceFacts => {
      const facts = this.#factsOf(object);
      const since = before ? before.get(keyOf(object)) : object.last_used_at;
      const mayPass = facts.state === 'stopped' && since !== object.last_used_at;
      return mayPass ? { ...facts, unsettled: true } : facts;
    };
    const of = (kind: string) =>
      objects.filter((object) => object.config[berthKeys.kind] === kind && isOurs(object));
    return {
      instances: new Map(of('instance').map((object) => [refOf(object), factsOf(object)])),
      snapshots: new Set(
        of('snapshot')
          // Of one on a lost host perhaps the name alone is known.
          .filter(({ config, location }) => isReady(config) || lost.has(location))
          .map(refOf),
      ),
      incomplete: found.incomplete || objects.length < found.objects.length,
    };
  }

  async #find(): Promise<Found> {
    const listing = this.#list();
    listing.catch(() => undefined);
    const lost = await this.#parts.members.probe();
    if (lost.size === 0) return { objects: await listing, incomplete: false };
    const objects = await inTime(listing, patienceMs);
    if (objects) return { objects, incomplete: false };
    return this.#findOneByOne(lost);
  }

  async #list(): Promise<readonly InstanceObject[]> {
    const { client, places } = this.#parts;
    const query = { recursion: '1', ...places.everywhere };
    const options = { query, timeoutMs: readMs };
    const listed = await client.get<ListedObject[]>('/1.0/instances', options);
    return listed.filter((object) => places.mayBeOurs(object)).map((object) => this.#whole(object));
  }

  /** What Incus leaves out is as it was; after a restart of the service the name alone is known. */
  #whole(object: ListedObject): InstanceObject {
    const { config, devices, status, location } = object;
    if (config) return { ...object, config, devices: devices ?? {} };
    const before = this.#last.get(keyOf(object));
    if (before) return { ...before, status, location };
    const { kind = '', ref = '' } = refOfName(object.name) ?? {};
    return { ...object, config: { [berthKeys.kind]: kind, [berthKeys.ref]: ref }, devices: {} };
  }

  /** What is on a lost host is as it was; the names are listed without asking the hosts. */
  async #findOneByOne(lost: ReadonlySet<string>): Promise<Found> {
    const wasOn = ({ location }: InstanceObject) => lost.has(location);
    const names = await this.#parts.places.list(findMs).catch(() => undefined);
    // No names: no quorum. What is on the others is as it was, too, but nobody can say so.
    if (!names) return { objects: [...this.#last.values()].filter(wasOn), incomplete: true };
    const objects: InstanceObject[] = [];
    let incomplete = false;
    const left = names.values();
    const lane = async () => {
      for (const place of left) {
        const before = this.#last.get(keyOf(place));
        const object = before && wasOn(before) ? before : await this.#findOne(place);
        if (object) objects.push(object);
        else incomplete = true;
      }
    };
    await Promise.all(Array.from({ length: findsAtOnce }, lane));
    return { objects, incomplete };
  }

  async #findOne(place: Place): Promise<InstanceObject | undefined> {
    return inTime(find(this.#parts.client, place), findMs);
  }

  async inspect(ref: EngineRef): Promise<InstanceFacts | undefined> {
    const { client, places } = this.#parts;
    const host = places.hostLost(instanceName(ref));
    if (host !== undefined) return { state: 'unreachable', host };
    const place = await places.instance(ref);
    const object = place && (await find(client, place));
    if (object?.status !== 'Error') return object && this.#factsOf(object);
    throw new EngineError(
      'unavailable',
      'Incus does not know at the moment. Try again in a minute.',
    );
  }

  #factsOf(object: InstanceObject): InstanceFacts {
    const { members, overview } = this.#parts;
    const host = overview.last.clustered ? { host: object.location } : {};
    if (members.lost.has(object.location)) return { state: 'unreachable', ...host };
    if (!isRunning(object)) return { state: 'stopped', ...host };
    const ref = refOf(object);
    const endpoint = sshEndpoint(this.#parts, ref);
    const httpPorts = publishedPorts(this.#parts, ref);
    return {
      state: 'running',
      ...host,
      ...(endpoint && { endpoint }),
      ...(httpPorts.length > 0 && { httpPorts }),
    };
  }
}

const refOf = ({ config }: InstanceObject): EngineRef => config[berthKeys.ref] ?? '';
