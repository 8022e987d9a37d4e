/** How the service reaches the servers of an instance. */

import { connect, type Socket } from 'node:net';

export const CONNECT_TIMEOUT_MS = 5_000;

export interface Dialer {
  /** Resolves when there is nothing in the way of connections but the servers themselves. */
  readonly ready: () => Promise<void>;
  /** Connects to this port of the instance. Whoever gets the socket has to listen for its errors at once. */
  readonly dial: (port: number) => Promise<Socket>;
  /** What was dialled stays connected. */
  readonly close: () => void;
}

/** For an instance that shares the host's network. */
export function dialerAt(address: string): Dialer {
  const dial = (port: number): Promise<Socket> =>
    new Promise((resolve, reject) => {
      const socket = connect({ host: address, port, allowHalfOpen: true });
      socket.setTimeout(CONNECT_TIMEOUT_MS, () => socket.destroy(new Error('no answer in time')));
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.removeAllListeners('timeout').off('error', reject);
        resolve(socket);
      });
    });
  return { ready: async () => undefined, dial, close: () => undefined };
}
