/** The one place that says from which address a request came; everything that counts or logs addresses asks here. */
import type { IncomingMessage } from 'node:http';
import { isIP, type Socket } from 'node:net';
import { addressGroup, isLoopback, Networks, plainAddress } from '../domain/addresses.ts';

export interface Caller {
  readonly address: string;
  /** What limits count by: see `addressGroup`. */
  readonly group: string;
  readonly isLocal: boolean;
}

interface Peer extends Caller {
  readonly isTrusted: boolean;
}

/**
 * A proxy of the list is believed about whom it speaks for, and only as far as the chain of `X-Forwarded-For` consists
 * of proxies of the list, read from the end: everything before the first stranger is that stranger's own invention.
 */
export class Callers {
  readonly #trusted: Networks;
  readonly #peers = new WeakMap<Socket, Peer>();

  constructor(trustedProxies: readonly string[] = []) {
    this.#trusted = new Networks(trustedProxies);
  }

  /** For the framework, which asks about every address of the chain. */
  readonly isTrusted = (address: string | undefined): boolean =>
    this.#trusted.contains(plainAddress(address ?? ''));

  of(request: IncomingMessage): Caller {
    const peer = this.#peer(request.socket);
    const chain = peer.isTrusted ? request.headers['x-forwarded-for'] : undefined;
    return chain === undefined ? peer : callerAt(this.#client(peer.address, String(chain)));
  }

  /** A proxy that is not of the list speaks for somebody: it is not heard, and somebody should know. */
  isIgnoredProxy(request: IncomingMessage): boolean {
    return (
      request.headers['x-forwarded-for'] !== undefined && !this.#peer(request.socket).isTrusted
    );
  }

  #peer(socket: Socket): Peer {
    const known = this.#peers.get(socket);
    if (known) return known;
    const caller = callerAt(plainAddress(socket.remoteAddress ?? ''));
    const peer = { ...caller, isTrusted: this.#trusted.contains(caller.address) };
    this.#peers.set(socket, peer);
    return peer;
  }

  #client(peer: string, chain: string): string {
    let client = peer;
    for (const entry of chain.split(',').reverse()) {
      const address = readEntry(entry.trim());
      if (address === undefined) return client;
      client = address;
      if (!this.#trusted.contains(address)) return client;
    }
    return client;
  }
}

const callerAt = (address: string): Caller => ({
  address,
  group: addressGroup(address),
  isLocal: isLoopback(address),
});

/** Some proxies add the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
function readEntry(entry: string): string | undefined {
  const bare =
    /^\[(.+)\](?::[0-9]+)?$/.exec(entry)?.[1] ?? entry.replace(/^([0-9.]+):[0-9]+$/, '$1');
  const plain = plainAddress(bare);
  return isIP(plain) === 0 ? undefined : plain;
}
