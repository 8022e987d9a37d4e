/** Bytes to the service as they are, for what no HTTP client would send. */

import { connect } from 'node:net';
import type { Answer } from './http.ts';

/** Sends bytes on a connection of their own; what came back until it closed, or the time was over. */
export function sendRaw(
  baseUrl: string,
  bytes: string | Buffer,
  timeoutMs = 3000,
): Promise<Buffer> {
  const { hostname, port } = new URL(baseUrl);
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    const timer = setTimeout(() => socket.destroy(), timeoutMs);
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      if (isWhole(Buffer.concat(chunks))) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.once('close', () => {
      clearTimeout(timer);
      resolve(Buffer.concat(chunks));
    });
    socket.write(Buffer.from(bytes));
  });
}

interface Head {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Where the body begins. */
  readonly end: number;
}

function readHead(received: Buffer): Head | undefined {
  const end = received.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [statusLine = '', ...headerLines] = received.toString('latin1', 0, end).split('\r\n');
  const headers: Record<string, string> = {};
  for (const line of headerLines) {
    const colon = line.indexOf(':');
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1] ?? 0);
  return { status, headers, end: end + 4 };
}

/** The chunks put together (RFC 9112 section 7.1); undefined while the last is missing. */
function joinChunks(body: Buffer): string | undefined {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const lineEnd = body.indexOf('\r\n', at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(body.toString('latin1', at, lineEnd), 16);
    if (size === 0) return Buffer.concat(parts).toString('utf8');
    parts.push(body.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}

/** The body, when it is whole; one without any length ends with the connection and never is before. */
function wholeBody(received: Buffer, head: Head): string | undefined {
  const body = received.subarray(head.end);
  if (/chunked/i.test(head.headers['transfer-encoding'] ?? '')) return joinChunks(body);
  const length = Number(head.headers['content-length'] ?? Number.NaN);
  return body.length >= length ? body.toString('utf8', 0, length) : undefined;
}

function isWhole(received: Buffer): boolean {
  const head = readHead(received);
  return head !== undefined && wholeBody(received, head) !== undefined;
}

/** The first response in these bytes; undefined when not even its head is whole. */
export function firstAnswer(received: Buffer): Answer | undefined {
  const head = readHead(received);
  if (head === undefined) return undefined;
  const text = wholeBody(received, head) ?? received.toString('utf8', head.end);
  return { status: head.status, headers: head.headers, text };
}
