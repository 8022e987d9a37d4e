/**
 * Which ports of which instance are published on this host. There is no record of it but the listeners: they end
 * with the service, and whoever starts it again says anew what is to be published.
 *
 * With a network of its own, an instance is reached there (own-network-dialer.ts). One that shares the host's network
 * shares its ports too, so the listener and the server behind it cannot both have 127.0.0.1. Each such instance has a
 * loopback address of its own for its servers (127.0.0.0/8 is all loopback, RFC 1122 section 3.2.1.3), made from its SSH
 * port, which no other instance of this host has.
 */

import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { EngineError, type EngineRef } from '../engine.ts';
import { type Dialer, dialerAt } from './dialer.ts';
import type { Host } from './host.ts';
import type { Running } from './launch.ts';
import type { Log } from './options.ts';
import { dialerInto } from './own-network-dialer.ts';
import { PortForwarder } from './port-forwarder.ts';

const CONNECTIONS_AN_INSTANCE = 256;
const MOST_CONNECTIONS = 4_096;
/** Each connection has two descriptors; the rest is for requests, disks and everything else. */
const DESCRIPTORS_A_CONNECTION = 4;
const USUAL_DESCRIPTORS = 1_024;
/** What held a port may just have ended: an instance that starts waits so long for its ports, all together. */
const PORT_RELEASE_MS = 1_000;
const POLL_INTERVAL_MS = 20;

/** Where the servers of an instance listen to be published: 127.64.0.0/16, by the SSH port. */
export function addressFor(sshPort: number): string {
  return `127.64.${sshPort >> 8}.${sshPort & 0xff}`;
}

export function dialerTo(running: Running, host: Host): Dialer {
  if (running.ownNetwork) return dialerInto(running, host);
  return dialerAt(addressFor(running.endpoint.port));
}

interface Entry {
  readonly running: Running;
  readonly dialer: Dialer;
  connections: number;
  readonly forwarders: Map<number, PortForwarder>;
}

export class PublishedPorts {
  private readonly address: string;
  private readonly log: Log;
  private readonly dialerTo: (running: Running) => Dialer;
  private readonly entries = new Map<EngineRef, Entry>();
  private readonly mostConnections = mostConnections();
  private connections = 0;

  constructor(address: string, log: Log, dialerTo: (running: Running) => Dialer) {
    this.address = address;
    this.log = log;
    this.dialerTo = dialerTo;
  }

  /** The published ports of an instance, lowest first. */
  of(ref: EngineRef): number[] {
    return [...(this.entries.get(ref)?.forwarders.keys() ?? [])].sort((one, other) => one - other);
  }

  /**
   * Publishes these ports and no others. All or nothing; connections through what stays are left alone.
   * @throws EngineError `port_taken` or `port_refused`
   */
  async set(ref: EngineRef, running: Running, ports: readonly number[]): Promise<void> {
    const entry = await this.entryOf(ref, running);
    const opened = new Map<number, PortForwarder>();
    try {
      const wanted = ports.filter((port) => !entry.forwarders.has(port));
      if (wanted.length > 0) await entry.dialer.ready();
      for (const port of wanted) opened.set(port, await this.open(entry, port));
    } catch (error) {
      await closeAll([...opened.values()]);
      if (entry.forwarders.size === 0) await this.withdraw(ref);
      throw error;
    }
    const gone = [...entry.forwarders].filter(([port]) => !ports.includes(port));
    for (const [port] of gone) entry.forwarders.delete(port);
    for (const [port, forwarder] of opened) entry.forwarders.set(port, forwarder);
    if (entry.forwarders.size === 0) await this.withdraw(ref);
    await closeAll(gone.map(([, forwarder]) => forwarder));
  }

  /** The same, without those that cannot be published now: a started instance is worth more than one of its ports. */
  async setWhatIsFree(ref: EngineRef, running: Running, ports: readonly number[]): Promise<void> {
    await this.set(
      ref,
      running,
      this.of(ref).filter((port) => ports.includes(port)),
    );
    const deadline = performance.now() + PORT_RELEASE_MS;
    for (const port of ports) {
      await this.addOnceFree(ref, { running, port, deadline }).catch((error: unknown) => {
        if (!(error instanceof EngineError)) throw error;
        this.log('warn', 'a port is not published for now', { ref, port, error });
      });
    }
  }

  private async addOnceFree(
    ref: EngineRef,
    { running, port, deadline }: { running: Running; port: number; deadline: number },
  ): Promise<void> {
    for (;;) {
      try {
        return await this.set(ref, running, [...this.of(ref), port]);
      } catch (error) {
        const isTaken = error instanceof EngineError && error.kind === 'port_taken';
        if (!isTaken || performance.now() > deadline) throw error;
        await sleep(POLL_INTERVAL_MS);
      }
    }
  }

  /** Closes the ports of an instance and cuts what goes through them. */
  async withdraw(ref: EngineRef): Promise<void> {
    const entry = this.entries.get(ref);
    this.entries.delete(ref);
    entry?.dialer.close();
    await closeAll([...(entry?.forwarders.values() ?? [])]);
  }

  async withdrawAll(): Promise<void> {
    await Promise.all([...this.entries.keys()].map((ref) => this.withdraw(ref)));
  }

  /** What led to an instance that has ended since, leads nowhere. */
  private async entryOf(ref: EngineRef, running: Running): Promise<Entry> {
    const known = this.entries.get(ref);
    if (known !== undefined && isSame(known.running, running)) return known;
    await this.withdraw(ref);
    const dialer = this.dialerTo(running);
    const entry = { running, dialer, connections: 0, forwarders: new Map() };
    this.entries.set(ref, entry);
    return entry;
  }

  private open(entry: Entry, port: number): Promise<PortForwarder> {
    return PortForwarder.open({
      address: this.address,
      port,
      dial: entry.dialer.dial,
      sharesPorts: !entry.running.ownNetwork,
      admit: () => this.admit(entry),
      leave: () => {
        entry.connections -= 1;
        this.connections -= 1;
      },
      onProblem: (error) => this.log('warn', 'a published port has a problem', { port, error }),
    });
  }

  private admit(entry: Entry): boolean {
    if (entry.connections >= CONNECTIONS_AN_INSTANCE) return false;
    if (this.connections >= this.mostConnections) return false;
    entry.connections += 1;
    this.connections += 1;
    return true;
  }
}

function isSame({ launcher: one }: Running, { launcher: other }: Running): boolean {
  return one.pid === other.pid && one.startTicks === other.startTicks;
}

async function closeAll(forwarders: readonly PortForwarder[]): Promise<void> {
  await Promise.all(forwarders.map((forwarder) => forwarder.close()));
}

/** So that visitors of published ports never use up the descriptors that the service itself needs (proc(5)). */
function mostConnections(): number {
  const limits = readFileSync('/proc/self/limits', 'latin1');
  const open = /^Max open files +(\d+)/m.exec(limits)?.[1];
  const descriptors = open === undefined ? USUAL_DESCRIPTORS : Number(open);
  return Math.min(MOST_CONNECTIONS, Math.floor(descriptors / DESCRIPTORS_A_CONNECTION));
}
