/**
 * Which hosts answer.
 *
 * Incus is not asked about that: it believes in a lost member for 20 seconds, makes everybody wait for it meanwhile,
 * and calls members lost that are there while a new leader is chosen. So each member is asked for its own `/1.0`,
 * which it answers at once, without the others and without a quorum. Two silences in a row, and it is lost.
 *
 * A server that is no cluster has one member: itself.
 */

import { IncusClient } from './client.ts';
import type { IncusOptions } from './options.ts';

export interface Member {
  readonly name: string;
  /** Its own address for the API; undefined where there is no cluster. */
  readonly url: string | undefined;
  readonly reachable: boolean;
  /** Incus puts nothing on it: the operator has evacuated it, or the cluster does not have it back yet. */
  readonly closed: boolean;
  /** The cluster's own word for it. */
  readonly status: string;
}

interface ServerEntry {
  readonly environment: { readonly server_name: string; readonly server_clustered: boolean };
}

interface MemberEntry {
  readonly server_name: string;
  readonly url: string;
  readonly status: string;
}

const readMs = 4_000;

export class Members {
  readonly #options: IncusOptions;
  readonly #client: IncusClient;
  /** A way to each member alone, by its URL. */
  readonly #direct = new Map<string, IncusClient>();
  /** As of the last time that the cluster named them: the list itself may be out of reach. */
  #known: readonly MemberEntry[] = [];
  #lost: ReadonlySet<string> = new Set();
  #probing: Promise<ReadonlySet<string>> | undefined;

  constructor(client: IncusClient, options: IncusOptions) {
    this.#client = client;
    this.#options = options;
  }

  /** Names of those that did not answer when they were last asked. */
  get lost(): ReadonlySet<string> {
    return this.#lost;
  }

  /** Every member, and whether it answers now. Rejects when the service cannot reach any of them. */
  async look(): Promise<readonly Member[]> {
    if (this.#known.length === 0) {
      const { environment } = await this.#client.get<ServerEntry>('/1.0', { timeoutMs: readMs });
      const name = environment.server_name;
      const alone = { name, url: undefined, reachable: true, closed: false, status: 'Online' };
      if (!environment.server_clustered) return [alone];
    }
    await this.#refresh();
    const lost = await this.probe();
    return this.#known.map(({ server_name: name, url, status }) => {
      const reachable = !lost.has(name);
      return { name, url, reachable, closed: status !== 'Online', status };
    });
  }

  /** Asks each of those that are known whether it is there; one asking at a time, whose result all get. */
  probe(): Promise<ReadonlySet<string>> {
    this.#probing ??= this.#probeAll().finally(() => {
      this.#probing = undefined;
    });
    return this.#probing;
  }

  /** Without a leader nobody knows the list: the one of the last time will do, if there was one. */
  async #refresh(): Promise<void> {
    const options = { query: { recursion: '1' }, timeoutMs: readMs };
    try {
      this.#known = await this.#client.get<MemberEntry[]>('/1.0/cluster/members', options);
    } catch (error) {
      if (this.#known.length === 0) throw error;
    }
  }

  async #probeAll(): Promise<ReadonlySet<string>> {
    const known = this.#known;
    const answers = await Promise.all(known.map(({ url }) => this.#directTo(url).answers()));
    const lost = new Set(known.filter((_member, index) => !answers[index]).map(nameOf));
    this.#tell(lost);
    this.#lost = lost;
    return lost;
  }

  #tell(lost: ReadonlySet<string>): void {
    for (const host of lost.difference(this.#lost))
      this.#options.log('error', 'a host does not answer', { host });
    for (const host of this.#lost.difference(lost))
      this.#options.log('info', 'a host answers again', { host });
  }

  #directTo(url: string): IncusClient {
    const known = this.#direct.get(url);
    if (known) return known;
    const made = new IncusClient({ ...this.#options, endpoints: [url] });
    this.#direct.set(url, made);
    return made;
  }

  close(): void {
    for (const client of this.#direct.values()) client.close();
  }
}

const nameOf = ({ server_name: name }: MemberEntry): string => name;
