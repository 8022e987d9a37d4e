/** The ways to the server: its local socket, or HTTPS with a client certificate. */

import { readFileSync } from 'node:fs';
import { Agent as HttpAgent, request } from 'node:http';
import { Agent as HttpsAgent, request as secureRequest } from 'node:https';
import { dirname } from 'node:path';
import type { IncusOptions } from './options.ts';

export interface Endpoint {
  readonly name: string;
  readonly send: typeof request;
  readonly agent: HttpAgent | HttpsAgent;
  /** Where it is, without the agent: for connections that are not shared. */
  readonly place: Readonly<Record<string, unknown>>;
  /** For `websocket`s: what comes before the path, and what TLS needs. */
  readonly socket: { readonly base: string; readonly options: Readonly<Record<string, unknown>> };
}

/** The server closes a connection that was idle for 30 s. Ours are let go before that. */
const idleMs = 20_000;

/** Undefined for what is not a local socket. */
function socketPathOf(endpoint: string): string | undefined {
  if (!endpoint.startsWith('unix:')) return undefined;
  return endpoint.slice('unix:'.length).replace(/^\/\/(?=\/)/, '');
}

/** Is Incus on this machine? */
export const isLocal = ({ endpoints }: Pick<IncusOptions, 'endpoints'>): boolean =>
  endpoints.every((endpoint) => socketPathOf(endpoint) !== undefined);

/** The folder of Incus's state, in which its socket is; undefined where it is on another machine. */
export function stateFolder({
  endpoints: [first = ''],
}: Pick<IncusOptions, 'endpoints'>): string | undefined {
  const socketPath = socketPathOf(first);
  return socketPath === undefined ? undefined : dirname(socketPath);
}

export function endpointOf(name: string, tls: IncusOptions['tls']): Endpoint {
  const socketPath = socketPathOf(name);
  if (socketPath !== undefined) {
    const agent = new HttpAgent({ keepAlive: true, timeout: idleMs });
    const socket = { base: `ws+unix:${socketPath}:`, options: {} };
    return { name, send: request, agent, place: { socketPath, host: 'incus' }, socket };
  }
  const { hostname, port: given } = new URL(name);
  const agent = new HttpsAgent({ keepAlive: true, timeout: idleMs });
  const host = hostname.replace(/^\[|\]$/g, '');
  const port = given === '' ? 8443 : Number(given);
  const options = tls ? trust(tls) : {};
  const socket = { base: `wss://${hostname}:${port}`, options };
  return { name, send: secureRequest, agent, place: { host, port, ...options }, socket };
}

function trust(tls: NonNullable<IncusOptions['tls']>): Record<string, unknown> {
  const read = (path: string) => readFileSync(path, 'utf8');
  // Incus makes its own certificate: that one is trusted, whatever name it bears.
  return {
    cert: read(tls.certFile),
    key: read(tls.keyFile),
    ca: read(tls.serverCertFile),
    checkServerIdentity: () => undefined,
  };
}
