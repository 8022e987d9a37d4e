/**
 * Which hosts answer.
 *
 * Incus is not asked about that: it believes in a lost member for 20 seconds, makes everybody wait for it meanwhile,
 * and calls members lost that are there while a new leader is chosen. So each member is asked for its own `/1.0`,
 * which it answers at once, without the others and without a quorum. Two silences in a row, and it is lost, until the
 * others get through to it again.
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
  readonly #asked = new Map<string, Promise<void>>();

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

  /** Asks each of those that are known whether it is there. Nobody waits for one that is lost: its answer will be seen. */
  async probe(): Promise<ReadonlySet<string>> {
    const asked = this.#known.map((member) => [member, this.#ask(member)] as const);
    const present = asked.filter(([{ server_name: name }]) => !this.#lost.has(name));
    await Promise.all(present.map(([, answer]) => answer));
    return this.#lost;
  }

  /** Without a leader nobody knows the list: the one of the last time will do, if there was one. */
  async #refresh(): Promise<void> {
    const options = { query: { recursion: '1' }, timeoutMs: readMs };
    try {
      this.#known = await this.#client.get<MemberEntry[]>('/1.0/cluster/members', options);
    } catch (error) {
      if (this.#known.length === 0) throw error;
    }
    // One that the operator has taken out of the cluster.
    this.#lost = this.#lost.intersection(new Set(this.#known.map(nameOf)));
  }

  /** One asking at a time, whose result all get. */
  #ask({ server_name: name, url }: MemberEntry): Promise<void> {
    const asking =
      this.#asked.get(name) ??
      this.#directTo(url)
        .answers()
        .then(
          async (isThere) => isThere && (!this.#lost.has(name) || (await this.#isReached(name))),
        )
        .then((isThere) => this.#note(name, isThere))
        .finally(() => this.#asked.delete(name));
    this.#asked.set(name, asking);
    return asking;
  }

  /** After its return the others do not get through to it for seconds, and nor does a call about what is on it. */
  async #isReached(target: string): Promise<boolean> {
    const reached = this.#client.get('/1.0', { target, timeoutMs: readMs });
    return reached.then(
      () => true,
      () => false,
    );
  }

  #note(host: string, isThere: boolean): void {
    if (isThere !== this.#lost.has(host)) return;
    if (isThere) this.#options.log('info', 'a host answers again', { host });
    else this.#options.log('error', 'a host does not answer', { host });
    const one = new Set([host]);
    this.#lost = isThere ? this.#lost.difference(one) : this.#lost.union(one);
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
