/**
 * One published port: listens on an address of the host and forwards every connection to the same port of an
 * instance. What is on either end is not trusted: a side that does not read is not read for, one that does not
 * answer is given up, and an error of one connection is never one of the service.
 */

import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { EngineError } from '../engine.ts';
import { codeOf } from './failures.ts';

const KEEP_ALIVE_MS = 60_000;
/** A connection on which nothing moves for so long is cut. */
const IDLE_TIMEOUT_MS = 600_000;
/** The same once one side has said all: it may be gone altogether, which cannot be told apart. */
const HALF_OPEN_TIMEOUT_MS = 60_000;

export interface ForwarderOptions {
  /** The address of the host to listen on. */
  readonly address: string;
  readonly port: number;
  /** Connects to a port of the instance. */
  readonly dial: (port: number) => Promise<Socket>;
  /** The instance shares the host's ports, so its own server may be what has the port. */
  readonly sharesPorts: boolean;
  /** False when there are too many connections already; each `true` is given back by `leave`. */
  readonly admit: () => boolean;
  readonly leave: () => void;
  readonly onProblem: (error: Error) => void;
}

export class PortForwarder {
  private readonly options: ForwarderOptions;
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();

  private constructor(options: ForwarderOptions) {
    this.options = options;
    // Half-open: a client that has said all may still be answered.
    this.server = createServer({ allowHalfOpen: true }, (client) => void this.forward(client));
  }

  /** @throws EngineError `port_taken` or `port_refused`; both name the port. */
  static async open(options: ForwarderOptions): Promise<PortForwarder> {
    const forwarder = new PortForwarder(options);
    const { server } = forwarder;
    server.listen({ host: options.address, port: options.port, exclusive: true });
    try {
      await once(server, 'listening');
    } catch (error) {
      throw explain(error, options);
    }
    // Out of descriptors, say: connections are refused until there are some again.
    server.on('error', options.onProblem);
    return forwarder;
  }

  /** Resolves when the port is free and every connection through it is cut. */
  async close(): Promise<void> {
    const closed = once(this.server, 'close');
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  private async forward(client: Socket): Promise<void> {
    // Also for one that is turned away: it may have an error to report by then.
    client.on('error', () => undefined);
    if (!this.options.admit()) return void client.resetAndDestroy();
    this.sockets.add(client);
    const guest = await this.options.dial(this.options.port).catch(() => undefined);
    if (guest === undefined || client.destroyed) {
      this.sockets.delete(client);
      guest?.destroy();
      client.resetAndDestroy();
      return this.options.leave();
    }
    this.join(client, guest);
    this.join(guest, client);
    // The pipes end the other side when one has ended, and pause one while the other does not read.
    client.pipe(guest);
    guest.pipe(client);
  }

  /** When `socket` is gone, `other` goes: once all is sent that was read before an orderly end, else at once. */
  private join(socket: Socket, other: Socket): void {
    this.sockets.add(socket);
    socket.setTimeout(IDLE_TIMEOUT_MS);
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.on('error', () => undefined);
    socket.on('timeout', () => socket.resetAndDestroy());
    socket.once('end', () => {
      for (const side of [socket, other]) side.setTimeout(HALF_OPEN_TIMEOUT_MS);
    });
    socket.once('close', () => {
      this.sockets.delete(socket);
      if (socket.readableEnded) other.destroySoon();
      else other.resetAndDestroy();
      if (!this.sockets.has(other)) this.options.leave();
    });
  }
}

function explain(error: unknown, { port, sharesPorts }: ForwarderOptions): EngineError {
  const code = codeOf(error);
  if (code === 'EADDRINUSE') {
    return new EngineError(
      'port_taken',
      sharesPorts
        ? `Port ${port} is in use on this host, so it cannot be published. If a server of this instance listens on all addresses, let it listen on $BERTH_ADDRESS and try again; else choose another port.`
        : `Port ${port} is in use on this host, so it cannot be published. Choose another port.`,
    );
  }
  if (code === 'EACCES') {
    return new EngineError(
      'port_refused',
      `Port ${port} cannot be published: this host does not let the service listen on ports that low. Choose one from 1024 on, or ask the operator.`,
    );
  }
  return new EngineError('failed', `Port ${port} could not be published on this host.`, {
    cause: error,
    detail: `listen: ${code}`,
  });
}
