/**
 * The SFTP that Incus offers for the files of an instance, running or not (SFTP version 3,
 * draft-ietf-secsh-filexfer-02). Incus's own files API calls a FIFO a file, and a GET of it never ends, after which not
 * even a deletion of the instance does. LSTAT here gives the real mode, and a new file can be renamed over an old one.
 */

import type { Duplex } from 'node:stream';
import type { IncusClient } from './client.ts';
import { IncusError, incusErrorOf } from './incus-error.ts';
import { instancePath, type Place } from './names.ts';

const packet = {
  init: 1,
  open: 3,
  close: 4,
  read: 5,
  write: 6,
  lstat: 7,
  setstat: 9,
  remove: 13,
  mkdir: 14,
  extended: 200,
  status: 101,
  handle: 102,
  data: 103,
  attributes: 105,
} as const;

const [ENDED, MISSING] = [1, 2];
const chunkBytes = 32 * 1024;
const longestPacketBytes = 256 * 1024;

export interface FileFacts {
  readonly size: number;
  readonly uid: number;
  readonly gid: number;
  /** st_mode, the kind of file included. */
  readonly mode: number;
}

interface Reply {
  readonly type: number;
  readonly body: Buffer;
}

export class Sftp {
  readonly #stream: Duplex;
  readonly #timer: NodeJS.Timeout;
  readonly #waiting: { resolve: (reply: Reply) => void; reject: (error: Error) => void }[] = [];
  #buffered = Buffer.alloc(0);
  #failure: Error | undefined;
  #id = 0;

  private constructor(stream: Duplex, giveUpAt: number) {
    this.#stream = stream;
    const late = () => this.#fail(new IncusError('timeout', 'Incus did not answer in time.'));
    this.#timer = setTimeout(late, Math.max(0, giveUpAt - performance.now()));
    const lost = (cause?: unknown) =>
      this.#fail(new IncusError('unknown_outcome', 'The connection to Incus was lost.', { cause }));
    stream.on('data', (chunk: Buffer) => this.#receive(chunk));
    stream.on('error', lost);
    stream.on('close', () => lost());
  }

  static async open(client: IncusClient, place: Place, giveUpAt: number): Promise<Sftp> {
    const path = client.pathOf(`${instancePath(place)}/sftp`, { project: place.project });
    const sftp = new Sftp(await upgrade(client, path, giveUpAt), giveUpAt);
    await sftp.#exchange(packet.init, Buffer.from([0, 0, 0, 3]));
    return sftp;
  }

  /** Undefined when there is nothing of that name. A symbolic link is not followed. */
  async lstat(path: string): Promise<FileFacts | undefined> {
    const { type, body } = await this.#ask(packet.lstat, text(path));
    if (type === packet.attributes) return factsIn(body.subarray(4));
    if (body.readUInt32BE(4) === MISSING) return undefined;
    throw refusal(body);
  }

  async read(path: string, limitBytes: number): Promise<Buffer> {
    const handle = await this.#open(path, 0x01);
    const chunks: Buffer[] = [];
    for (let offset = 0; offset < limitBytes; ) {
      const length = Math.min(chunkBytes, limitBytes - offset);
      const { type, body } = await this.#ask(packet.read, handle, long(offset), int(length));
      if (type === packet.status && body.readUInt32BE(4) === ENDED) break;
      if (type !== packet.data) throw refusal(body);
      const chunk = body.subarray(8, 8 + body.readUInt32BE(4));
      if (chunk.length === 0) break;
      chunks.push(chunk);
      offset += chunk.length;
    }
    await this.#do(packet.close, handle);
    return Buffer.concat(chunks);
  }

  /** Makes the file; fails when there is one. */
  async create(path: string, content: Buffer): Promise<void> {
    const handle = await this.#open(path, 0x02 | 0x08 | 0x20);
    for (let offset = 0; offset < content.length; offset += chunkBytes) {
      const chunk = content.subarray(offset, offset + chunkBytes);
      await this.#do(packet.write, handle, long(offset), int(chunk.length), chunk);
    }
    await this.#do(packet.close, handle);
  }

  async chmod(path: string, mode: number): Promise<void> {
    await this.#do(packet.setstat, text(path), int(0x04), int(mode));
  }

  async chown(path: string, uid: number, gid: number): Promise<void> {
    await this.#do(packet.setstat, text(path), int(0x02), int(uid), int(gid));
  }

  async mkdir(path: string): Promise<void> {
    await this.#do(packet.mkdir, text(path), int(0));
  }

  async remove(path: string): Promise<void> {
    await this.#do(packet.remove, text(path));
  }

  /** Over a file that is there, in one step. */
  async rename(from: string, to: string): Promise<void> {
    await this.#do(packet.extended, text('posix-rename@openssh.com'), text(from), text(to));
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#stream.destroy();
  }

  async #open(path: string, flags: number): Promise<Buffer> {
    const { type, body } = await this.#ask(packet.open, text(path), int(flags), int(0));
    if (type !== packet.handle) throw refusal(body);
    return body.subarray(4);
  }

  async #do(type: number, ...parts: readonly Buffer[]): Promise<void> {
    const reply = await this.#ask(type, ...parts);
    if (reply.type !== packet.status || reply.body.readUInt32BE(4) !== 0) throw refusal(reply.body);
  }

  #ask(type: number, ...parts: readonly Buffer[]): Promise<Reply> {
    this.#id += 1;
    return this.#exchange(type, int(this.#id), ...parts);
  }

  /** One question at a time, so the next reply is the one to it. */
  #exchange(type: number, ...parts: readonly Buffer[]): Promise<Reply> {
    if (this.#failure) return Promise.reject(this.#failure);
    const body = Buffer.concat([Buffer.from([type]), ...parts]);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#stream.write(Buffer.concat([int(body.length), body]));
    });
  }

  #receive(chunk: Buffer): void {
    this.#buffered = Buffer.concat([this.#buffered, chunk]);
    while (this.#buffered.length >= 4) {
      const length = this.#buffered.readUInt32BE(0);
      if (length < 5 || length > longestPacketBytes) {
        this.#fail(new IncusError('refused', 'What answered is not SFTP.'));
        return;
      }
      if (this.#buffered.length < 4 + length) return;
      const [type = 0] = this.#buffered.subarray(4);
      const body = this.#buffered.subarray(5, 4 + length);
      this.#buffered = this.#buffered.subarray(4 + length);
      this.#waiting.shift()?.resolve({ type, body });
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    clearTimeout(this.#timer);
    for (const { reject } of this.#waiting.splice(0)) reject(this.#failure);
    this.#stream.destroy();
  }
}

function upgrade(client: IncusClient, path: string, giveUpAt: number): Promise<Duplex> {
  const endpoint = client.current;
  return new Promise((resolve, reject) => {
    if (!endpoint) return reject(new IncusError('unreachable', 'There is no Incus to ask.'));
    const headers = { connection: 'Upgrade', upgrade: 'sftp' };
    const sent = endpoint.send({ ...endpoint.place, agent: false, method: 'GET', path, headers });
    const timer = setTimeout(
      () => {
        reject(new IncusError('timeout', 'Incus did not answer in time.'));
        sent.destroy();
      },
      Math.max(0, giveUpAt - performance.now()),
    );
    sent.once('upgrade', (_, socket, head: Buffer) => {
      clearTimeout(timer);
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    sent.once('response', (response) => {
      clearTimeout(timer);
      response.setEncoding('utf8').once('data', (said: string) => {
        reject(incusErrorOf(response.statusCode ?? 0, said.slice(0, 1000)));
        sent.destroy();
      });
    });
    sent.once('error', (cause) => {
      clearTimeout(timer);
      reject(new IncusError('unreachable', 'Incus cannot be reached.', { cause }));
    });
    sent.end();
  });
}

function int(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32BE(value >>> 0);
  return buffer;
}

function long(value: number): Buffer {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64BE(BigInt(value));
  return buffer;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([int(bytes.length), bytes]);
}

/** Flags, then size, uid and gid, permissions: each where its flag says so. */
function factsIn(body: Buffer): FileFacts {
  const flags = body.readUInt32BE(0);
  if ((flags & 0x07) !== 0x07) throw new IncusError('refused', 'SFTP left out what a file is.');
  return {
    size: Number(body.readBigUInt64BE(4)),
    uid: body.readUInt32BE(12),
    gid: body.readUInt32BE(16),
    mode: body.readUInt32BE(20),
  };
}

/** A status packet as an error: the words behind its code tell a full disk. */
function refusal(body: Buffer): IncusError {
  if (body.length < 12) return new IncusError('refused', 'SFTP answered something else.');
  return incusErrorOf(500, body.subarray(12, 12 + body.readUInt32BE(8)).toString());
}
