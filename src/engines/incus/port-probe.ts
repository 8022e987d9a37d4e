/**
 * Does a host have the port for something else? Incus does not ask: a forward on the port of a server takes that
 * server's visitors away.
 */

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/** Where nothing answers at all, as behind a firewall, the port counts as free after so long. */
const answerMs = 500;

/** By taking the port for a moment where the address is this host's, else by knocking. */
export async function isPortTaken(address: string, port: number): Promise<boolean> {
  const outcome = await tryToListen(address, port);
  if (outcome === 'EADDRINUSE') return true;
  if (outcome === undefined) return false;
  // Another host's address; or a low port, which not everybody may take.
  return answers(address, port);
}

/** The code of the error; undefined when it could be taken. */
async function tryToListen(host: string, port: number): Promise<string | undefined> {
  const server = createServer((socket) => socket.destroy());
  try {
    server.listen({ host, port, exclusive: true });
    await once(server, 'listening');
  } catch (error) {
    return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
  }
  server.close();
  await once(server, 'close');
  return undefined;
}

function answers(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: answerMs });
    const end = (answered: boolean) => {
      socket.destroy();
      resolve(answered);
    };
    socket.once('connect', () => end(true));
    socket.once('timeout', () => end(false));
    socket.once('error', () => end(false));
  });
}
