/** What the engine asks of TCP: is a port free, and does an SSH server answer on it. */

import { connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Endpoint } from '../engine.ts';

const POLL_INTERVAL_MS = 5;
const PORT_RELEASE_MS = 200;
const BANNER_READ_TIMEOUT_MS = 2_000;

/** Where a client on this host connects to reach what listens on this address. */
function reachable(address: string): string {
  if (address === '0.0.0.0') return '127.0.0.1';
  return address === '::' ? '::1' : address;
}

/** Can this port be bound, now or very soon? The kernel closes the sockets of a killed process a little later. */
export async function isPortFree(endpoint: Endpoint): Promise<boolean> {
  const deadline = performance.now() + PORT_RELEASE_MS;
  for (;;) {
    if (await canBind(endpoint)) return true;
    if (performance.now() > deadline) return false;
    await sleep(POLL_INTERVAL_MS);
  }
}

/** Throws what `listen` throws for any other reason than a port in use. */
function canBind(endpoint: Endpoint): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(false);
      else reject(error);
    });
    server.listen({ host: endpoint.ip, port: endpoint.port, exclusive: true }, () => {
      server.close(() => resolve(true));
    });
  });
}

/** Connects and reads the first bytes; true when they are an SSH identification string (RFC 4253, 4.2). */
function answersSsh(endpoint: Endpoint): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: reachable(endpoint.ip), port: endpoint.port });
    const finish = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(BANNER_READ_TIMEOUT_MS, () => finish(false));
    socket.once('error', () => finish(false));
    socket.once('close', () => resolve(false));
    socket.once('data', (chunk: Buffer) => finish(chunk.toString('latin1').startsWith('SSH-2.0-')));
  });
}

export type BannerOutcome = 'answered' | 'died' | 'timed_out';

/** What is known of the process that should answer. */
export interface Answerer {
  readonly isAlive: () => boolean;
  /** Is it the one that listens? A stranger may have taken the port while ours was still starting. */
  readonly isListening: () => boolean;
}

/** Waits until sshd answers, its process ends, or the time is over. */
export async function waitForBanner(
  endpoint: Endpoint,
  { isAlive, isListening }: Answerer,
  timeoutMs: number,
): Promise<BannerOutcome> {
  const deadline = performance.now() + timeoutMs;
  while (performance.now() < deadline) {
    const answered = await answersSsh(endpoint);
    // Looked at after the answer: a stranger on the port must not pass for an sshd that could not bind it.
    if (!isAlive()) return 'died';
    if (answered && isListening()) return 'answered';
    await sleep(POLL_INTERVAL_MS);
  }
  return 'timed_out';
}
