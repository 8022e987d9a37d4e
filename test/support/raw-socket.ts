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

function headerEnd(received: Buffer): number {
  return received.indexOf('\r\n\r\n');
}

function contentLength(head: string): number | undefined {
  const found = /^content-length: *(\d+)\r?$/im.exec(head);
  return found === null ? undefined : Number(found[1]);
}

function isWhole(received: Buffer): boolean {
  const end = headerEnd(received);
  if (end < 0) return false;
  const length = contentLength(received.toString('latin1', 0, end));
  return length !== undefined && received.length >= end + 4 + length;
}

/** The first response in these bytes; undefined when there is none that is whole. */
export function firstAnswer(received: Buffer): Answer | undefined {
  const end = headerEnd(received);
  if (end < 0) return undefined;
  const [statusLine = '', ...headerLines] = received.toString('latin1', 0, end).split('\r\n');
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1] ?? 0);
  const headers: Record<string, string> = {};
  for (const line of headerLines) {
    const colon = line.indexOf(':');
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  const length = Number(headers['content-length'] ?? received.length);
  const text = received.toString('utf8', end + 4, Math.min(received.length, end + 4 + length));
  return { status, headers, text };
}
