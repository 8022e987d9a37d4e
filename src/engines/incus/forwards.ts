/**
 * Which ports of which instance are published, by network forwards of Incus: rules of the host's firewall, which are
 * there whether the guest runs or not, survive a restart of Incus, and know nothing of servers on the host.
 */

import { type Endpoint, EngineError, type EngineRef } from '../engine.ts';
import type { IncusClient } from './client.ts';
import { cutConnections } from './connections.ts';
import { failingAs } from './failures.ts';
import {
  ForwardBoard,
  type ForwardObject,
  forwardsPath,
  PortTaken,
  type Published,
} from './forward-board.ts';
import type { Place } from './names.ts';
import { readBridge } from './network.ts';
import type { IncusOptions } from './options.ts';
import { isPortTaken } from './port-probe.ts';

export interface Guest {
  readonly ref: EngineRef;
  /** Its own, on the bridge. */
  readonly address: string;
  /** The member of a cluster that has it. */
  readonly member?: string | undefined;
  /** Where it runs: what goes through a port that is taken back is cut in there. */
  readonly place?: Place | undefined;
}

export interface GuestPorts {
  readonly sshPort: number;
  /** The same number outside and inside. */
  readonly httpPorts: readonly number[];
}

/** What the world sees of an instance. */
export interface GuestView {
  /** Where SSH answers, while that is published. */
  readonly endpoint: Endpoint | undefined;
  readonly httpPorts: number[];
}

const sshTarget = 22;
/** Below are the ports of the host's own services, which a rule of the firewall would take from them. */
const firstPort = 1024;
const readMs = 4_000;

export class Forwards {
  readonly #client: IncusClient;
  readonly #options: Pick<IncusOptions, 'network' | 'listenAddress' | 'log'>;
  /** By member and listen address. */
  readonly #boards = new Map<string, ForwardBoard>();
  readonly #addresses = new Map<string, Promise<string>>();

  constructor(
    client: IncusClient,
    options: Pick<IncusOptions, 'network' | 'listenAddress' | 'log'>,
  ) {
    this.#client = client;
    this.#options = options;
  }

  /** Learns what is published; to be called before anything else, and never while something is being changed. */
  async load(): Promise<void> {
    const path = forwardsPath(this.#options.network);
    const query = { recursion: '1' };
    const found = await failingAs('The published ports could not be read from Incus.', () =>
      this.#client.get<ForwardObject[]>(path, { query, timeoutMs: readMs }),
    );
    this.#boards.clear();
    for (const forward of found) {
      const member = ['', 'none'].includes(forward.location) ? undefined : forward.location;
      this.#board(member, forward.listen_address, forward);
    }
  }

  /** Puts right what others changed; `isLost` names members that are not to be waited for. */
  async heal(isLost: (member: string) => boolean): Promise<void> {
    const boards = [...this.#boards.values()].filter(
      ({ member }) => member === undefined || !isLost(member),
    );
    const healed = await Promise.all(boards.map(async (board) => (await board.heal()) && board));
    for (const board of healed) {
      if (!board) continue;
      const { address, member } = board;
      this.#options.log('warn', 'published ports were changed by others', { address, member });
    }
  }

  /** Every instance that has ports. */
  refs(): Set<EngineRef> {
    return new Set([...this.#boards.values()].flatMap((board) => board.refs()));
  }

  /** What is published of an instance; undefined when nothing is. */
  of(ref: EngineRef): GuestView | undefined {
    for (const board of this.#boards.values()) {
      const entries = board.of(ref);
      if (entries.length === 0) continue;
      const ssh = entries.find(({ targetPort }) => targetPort === sshTarget);
      return {
        endpoint: ssh && { ip: board.address, port: ssh.port },
        httpPorts: entries.filter((entry) => entry !== ssh).map(({ port }) => port),
      };
    }
    return undefined;
  }

  /**
   * Publishes these ports of a guest and no others, all or nothing. Connections through what stays are left alone,
   * those through what goes are cut.
   * @throws EngineError `port_taken` or `port_refused`, naming the port
   */
  async set(guest: Guest, ports: GuestPorts): Promise<void> {
    const low = ports.httpPorts.find(isLow);
    if (low !== undefined) throw portRefused(low);
    const board = await this.#boardOf(guest.member);
    const wanted = entriesOf(guest, ports);
    const taken = await takenOf(board, wanted);
    const [first] = taken;
    if (first !== undefined) throw new PortTaken(first);
    await this.#apply(board, guest, wanted);
  }

  /** The same, without HTTP ports that something else has: a started instance is worth more than one of its ports. */
  async setWhatIsFree(guest: Guest, ports: GuestPorts): Promise<void> {
    const board = await this.#boardOf(guest.member);
    const wanted = entriesOf(guest, ports);
    const taken = await takenOf(board, wanted);
    for (const low of ports.httpPorts.filter(isLow)) taken.add(low);
    for (;;) {
      if (taken.has(ports.sshPort)) throw new PortTaken(ports.sshPort);
      try {
        const free = wanted.filter(({ port }) => !taken.has(port));
        await this.#apply(board, guest, free);
        break;
      } catch (error) {
        if (!(error instanceof PortTaken)) throw error;
        taken.add(error.port);
      }
    }
    for (const port of taken)
      this.#options.log('warn', 'a port is not published for now', { ref: guest.ref, port });
  }

  /** Takes back every port of an instance, wherever it was. */
  async withdraw(ref: EngineRef): Promise<void> {
    await this.#clear(ref, [...this.#boards.values()]);
  }

  async #apply(board: ForwardBoard, guest: Guest, wanted: readonly Published[]): Promise<void> {
    const { ref, place } = guest;
    const before = board.of(ref);
    await board.change(ref, wanted);
    // Of a host that it was on before, or of another listen address.
    await this.#clear(
      ref,
      [...this.#boards.values()].filter((other) => other !== board),
    );
    const gone = before.filter(({ port }) => !wanted.some((entry) => entry.port === port));
    const inside = gone.map(({ targetPort }) => targetPort).filter((port) => port !== sshTarget);
    if (place && inside.length > 0)
      await cutConnections(this.#client, place, inside).catch((error: unknown) => {
        const fields = { ref, ports: inside, err: error };
        this.#options.log('warn', 'what goes through withdrawn ports was not cut', fields);
      });
  }

  async #clear(ref: EngineRef, boards: readonly ForwardBoard[]): Promise<void> {
    const concerned = boards.filter((board) => board.of(ref).length > 0);
    await Promise.all(concerned.map((board) => board.change(ref, [])));
  }

  async #boardOf(member: string | undefined): Promise<ForwardBoard> {
    const address = await failingAs('The address for ports is not known.', () =>
      this.listenAddressOf(member),
    );
    return this.#board(member, address);
  }

  #board(member: string | undefined, address: string, known?: ForwardObject): ForwardBoard {
    const key = `${member ?? ''} ${address}`;
    const place = { network: this.#options.network, address, member };
    const board = this.#boards.get(key) ?? new ForwardBoard(this.#client, place, known);
    this.#boards.set(key, board);
    return board;
  }

  /** Where ports are published: as the operator says, else on the member's own address, else on the bridge's. */
  listenAddressOf(member: string | undefined): Promise<string> {
    const { listenAddress } = this.#options;
    if (listenAddress !== undefined) return Promise.resolve(listenAddress);
    const key = member ?? '';
    const known = this.#addresses.get(key) ?? this.#lookUp(member);
    this.#addresses.set(key, known);
    known.catch(() => this.#addresses.delete(key));
    return known;
  }

  async #lookUp(member: string | undefined): Promise<string> {
    if (member === undefined)
      return (await readBridge(this.#client, this.#options.network)).address;
    const path = `/1.0/cluster/members/${encodeURIComponent(member)}`;
    const { url } = await this.#client.get<{ url: string }>(path, { timeoutMs: readMs });
    return new URL(url).hostname.replace(/^\[|\]$/g, '');
  }
}

const isLow = (port: number): boolean => port < firstPort;

const portRefused = (port: number): EngineError =>
  new EngineError(
    'port_refused',
    `Port ${port} cannot be published: ports below ${firstPort} are the host's own. Choose one from ${firstPort} on.`,
  );

const entriesOf = ({ ref, address }: Guest, { sshPort, httpPorts }: GuestPorts): Published[] => [
  { ref, port: sshPort, address, targetPort: sshTarget },
  ...httpPorts.map((port) => ({ ref, port, address, targetPort: port })),
];

/** Those that are not the guest's yet, and that another one or something on the host has. */
async function takenOf(board: ForwardBoard, wanted: readonly Published[]): Promise<Set<number>> {
  const fresh = wanted.filter(({ ref, port }) => board.holder(port) !== ref);
  const probed = await Promise.all(
    fresh.map(async ({ port }) => ({
      port,
      taken: board.holder(port) !== undefined || (await isPortTaken(board.address, port)),
    })),
  );
  return new Set(probed.filter(({ taken }) => taken).map(({ port }) => port));
}
