/**
 * The network forward of one listen address: which port leads where. Incus takes the whole list at once and the last
 * writer wins, so there is one of these for each address, and it writes one list at a time. Whatever is asked for while
 * a list is on its way goes into the next one together.
 *
 * Ports of ours bear the ref of their instance; others are somebody else's and stay as they are.
 */

import { EngineError, type EngineRef } from '../engine.ts';
import type { CallOptions, IncusClient } from './client.ts';
import { asEngineError } from './failures.ts';
import { isIncusError } from './incus-error.ts';

/** As Incus writes it. */
export interface ForwardPort {
  readonly description: string;
  readonly protocol: string;
  readonly listen_port: string;
  readonly target_port: string;
  readonly target_address: string;
}

export interface ForwardObject {
  readonly listen_address: string;
  readonly description: string;
  readonly config: Readonly<Record<string, string>>;
  readonly ports: readonly ForwardPort[] | null;
  /** The member of a cluster; `none` without one. */
  readonly location: string;
}

/** A port of ours. */
export interface Published {
  readonly ref: EngineRef;
  readonly port: number;
  readonly address: string;
  readonly targetPort: number;
}

interface Change {
  readonly ref: EngineRef;
  readonly wanted: readonly Published[];
  readonly resolve: () => void;
  readonly reject: (error: EngineError) => void;
}

const readMs = 4_000;
const changeMs = 10_000;
const mark = 'berth:';

export const forwardsPath = (network: string): string =>
  `/1.0/networks/${encodeURIComponent(network)}/forwards`;

export class PortTaken extends EngineError {
  readonly port: number;

  constructor(port: number) {
    super(
      'port_taken',
      `Port ${port} is in use on this host, so it cannot be published. Choose another port, or ask the operator what has it.`,
    );
    this.port = port;
  }
}

export class ForwardBoard {
  readonly address: string;
  readonly member: string | undefined;
  readonly #client: IncusClient;
  readonly #network: string;
  readonly #target: { readonly target?: string };
  #published: ReadonlyMap<number, Published>;
  #queue: Change[] = [];
  #writing = false;
  #wasAmiss = false;

  constructor(
    client: IncusClient,
    place: { network: string; address: string; member: string | undefined },
    known?: ForwardObject,
  ) {
    this.#client = client;
    this.#network = place.network;
    this.address = place.address;
    this.member = place.member;
    this.#target = place.member === undefined ? {} : { target: place.member };
    this.#published = new Map(oursIn(known).map((entry) => [entry.port, entry]));
  }

  /** The ports of an instance, lowest first. */
  of(ref: EngineRef): Published[] {
    const ports = [...this.#published.values()].filter((entry) => entry.ref === ref);
    return ports.sort((one, other) => one.port - other.port);
  }

  refs(): EngineRef[] {
    return [...this.#published.values()].map(({ ref }) => ref);
  }

  holder(port: number): EngineRef | undefined {
    return this.#published.get(port)?.ref;
  }

  /** Gives the instance these ports and no others, all or nothing. */
  change(ref: EngineRef, wanted: readonly Published[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ ref, wanted, resolve, reject });
      if (this.#writing) return;
      this.#writing = true;
      // Those who ask in the same moment are to be in the first list already.
      queueMicrotask(() => void this.#drain());
    });
  }

  /**
   * Puts right what others changed, or what a lost answer left behind, at the second look in a row that finds it; true
   * when there was something. Incus writes a list down first, and then the firewall from what it has read: a list sent
   * meanwhile would stand written, with the rules of the other.
   */
  async heal(): Promise<boolean> {
    if (this.#writing) return false;
    this.#writing = true;
    try {
      const known = await this.#read();
      const ports = [...foreignIn(known), ...written(this.#published)];
      const mayBeOnItsWay = !this.#wasAmiss;
      this.#wasAmiss = !samePorts(known?.ports ?? [], ports);
      if (!this.#wasAmiss || mayBeOnItsWay) return false;
      await this.#send(known, ports);
      return true;
    } finally {
      // For what was asked meanwhile.
      void this.#drain();
    }
  }

  async #drain(): Promise<void> {
    while (this.#queue.length > 0) await this.#write(this.#queue.splice(0));
    this.#writing = false;
  }

  /** Settles every change of the batch; never rejects. */
  async #write(batch: readonly Change[]): Promise<void> {
    let accepted: readonly Change[] = batch;
    try {
      const known = await this.#read();
      const foreign = foreignIn(known);
      const next = new Map(this.#published);
      accepted = batch.filter((change) => apply(change, next, foreign));
      await this.#send(known, [...foreign, ...written(next)]);
      this.#published = next;
    } catch (error) {
      const alone = accepted.length === 1 || !isIncusError(error, 'refused');
      if (alone) for (const change of accepted) change.reject(explain(error));
      // What one of them asks for is no fault of the others.
      else for (const change of accepted) await this.#write([change]);
      return;
    }
    for (const change of accepted) change.resolve();
  }

  async #read(): Promise<ForwardObject | undefined> {
    try {
      return await this.#client.get<ForwardObject>(this.#path, this.#options(readMs));
    } catch (error) {
      if (isIncusError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  async #send(known: ForwardObject | undefined, ports: readonly ForwardPort[]): Promise<void> {
    const options = this.#options(changeMs);
    if (known) {
      if (samePorts(known.ports ?? [], ports)) return;
      const { config, description } = known;
      await this.#client.change('PUT', this.#path, { config, description, ports }, options);
      return;
    }
    if (ports.length === 0) return;
    const body = { listen_address: this.address, description: '', config: {}, ports };
    await this.#client.change('POST', forwardsPath(this.#network), body, options);
  }

  get #path(): string {
    return `${forwardsPath(this.#network)}/${encodeURIComponent(this.address)}`;
  }

  #options(timeoutMs: number): CallOptions {
    return { ...this.#target, timeoutMs };
  }
}

/** Changes `next` as asked; rejects the change and returns false when somebody else has one of the ports. */
function apply(
  { ref, wanted, reject }: Change,
  next: Map<number, Published>,
  foreign: readonly ForwardPort[],
): boolean {
  const taken = wanted.find(({ port }) => {
    const holder = next.get(port)?.ref;
    return (holder !== undefined && holder !== ref) || foreign.some((one) => listensOn(one, port));
  });
  if (taken) {
    reject(new PortTaken(taken.port));
    return false;
  }
  for (const entry of [...next.values()]) if (entry.ref === ref) next.delete(entry.port);
  for (const entry of wanted) next.set(entry.port, entry);
  return true;
}

const isOurs = ({ description, protocol, listen_port }: ForwardPort): boolean =>
  description.startsWith(mark) && protocol === 'tcp' && /^\d+$/.test(listen_port);

const foreignIn = (known: ForwardObject | undefined): ForwardPort[] =>
  (known?.ports ?? []).filter((port) => !isOurs(port));

function oursIn(known: ForwardObject | undefined): Published[] {
  return (known?.ports ?? []).filter(isOurs).map((port) => ({
    ref: port.description.slice(mark.length),
    port: Number(port.listen_port),
    address: port.target_address,
    targetPort: Number(port.target_port),
  }));
}

const written = (entries: ReadonlyMap<number, Published>): ForwardPort[] =>
  [...entries.values()]
    .sort((one, other) => one.port - other.port)
    .map(({ ref, port, address, targetPort }) => ({
      description: `${mark}${ref}`,
      protocol: 'tcp',
      listen_port: String(port),
      target_port: String(targetPort),
      target_address: address,
    }));

/** Incus also takes lists and ranges: `80,8000-8010`. */
function listensOn({ protocol, listen_port: ports }: ForwardPort, port: number): boolean {
  if (protocol !== 'tcp') return false;
  return ports.split(',').some((part) => {
    const [from = '', to = from] = part.split('-');
    return Number(from) <= port && port <= Number(to);
  });
}

/** In whatever order Incus lists them. */
function samePorts(one: readonly ForwardPort[], other: readonly ForwardPort[]): boolean {
  const texts = (ports: readonly ForwardPort[]) => ports.map(textOf).sort().join('\n');
  return texts(one) === texts(other);
}

const textOf = (port: ForwardPort): string =>
  [port.description, port.protocol, port.listen_port, port.target_port, port.target_address].join(
    '\t',
  );

const explain = (error: unknown): EngineError =>
  asEngineError(error, 'The ports of the instance could not be published. Try again in a minute.');
