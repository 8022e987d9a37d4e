import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { Duplex } from 'node:stream';
import { errorBody, frameworkErrorBody, jsonType } from './error-handler.ts';
import { newRequestId, requestId } from './request-id.ts';
import type { TlsIdentity } from './tls.ts';

/** Clients give up after 30 s; a request that trickles in must not hold a connection for longer. */
const serverOptions = {
  requestTimeout: 15_000,
  headersTimeout: 10_000,
  keepAliveTimeout: 72_000,
  connectionsCheckingInterval: 2000,
  // Node would answer without a body; `refuseWithoutHost` answers with the contract's.
  requireHostHeader: false,
};

/** How long a refused peer may take to read the refusal. */
const lingerMs = 1000;

const parserStatuses: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};

/** A server that refuses what never reaches the router (no Host, CONNECT, an unknown expectation) in the contract's words. */
export function openServer(listener: RequestListener, tls?: TlsIdentity): Server {
  const server = tls ? secureServer(listener, tls) : createServer(serverOptions, listener);
  server.on('checkExpectation', (_request, response) => refuse(response, 417));
  server.on('connect', (_request, socket) =>
    writeRefusal(socket, 405, errorBody(405, 'method_not_allowed', noProxy)),
  );
  return server;
}

function secureServer(listener: RequestListener, tls: TlsIdentity): Server {
  const server = createSecureServer({ ...serverOptions, ...tls.settings() }, listener);
  tls.attach(server);
  return server;
}

const noProxy = 'This service is not a proxy. See /docs for what it answers.';

const handshakeFailure = /^(ERR_SSL_|ERR_TLS_|EPROTO)/;

/** What is not even HTTP gets the contract's error body too; there is no response object yet. */
export function refuseUnparsed(error: Error & { code?: string }, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
  // No handshake, and so nobody who could read an answer, for which the socket would wait.
  if (handshakeFailure.test(error.code ?? '')) return void socket.destroy();
  const status = parserStatuses[error.code ?? ''] ?? 400;
  writeRefusal(socket, status, frameworkErrorBody(status));
}

/** RFC 9112 section 3.2 wants a Host. True when there was none, and the refusal is on its way. */
export function refuseWithoutHost(request: IncomingMessage, response: ServerResponse): boolean {
  if (request.headers.host !== undefined || request.httpVersion !== '1.1') return false;
  refuse(response, 400);
  return true;
}

export function refuse(response: ServerResponse, status: number): void {
  const body = JSON.stringify(frameworkErrorBody(status));
  response.writeHead(status, {
    'content-type': jsonType,
    'content-length': Buffer.byteLength(body),
    'x-request-id': requestId(response.req),
    connection: 'close',
    ...(status === 503 && { 'retry-after': '5' }),
    ...(status === 401 && { 'www-authenticate': 'Bearer' }),
  });
  response.end(body);
}

function writeRefusal(socket: Duplex, status: number, content: object): void {
  const body = JSON.stringify(content);
  const head = [
    `HTTP/1.1 ${status} Refused`,
    `Content-Type: ${jsonType}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${newRequestId()}`,
    ...(status === 405 ? ['Allow: GET, POST, PATCH, DELETE'] : []),
    'Connection: close',
  ];
  endAndForget(socket, `${head.join('\r\n')}\r\n\r\n${body}`);
}

/** A socket that node has handed over has no listener left, and nobody closes it but us. */
function endAndForget(socket: Duplex, text: string): void {
  socket.on('error', () => socket.destroy());
  // Read on for a moment: to close over unread bytes would reset the connection, and the refusal with it.
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), lingerMs).unref();
  socket.once('close', () => clearTimeout(timer));
  socket.end(text);
}
