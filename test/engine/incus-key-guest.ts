/** A system container without a network, for tests of what is done to its files. */

import assert from 'node:assert/strict';
import { connect as connectTo, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { IncusClient } from '../../src/engines/incus/client.ts';
import { GuestExec } from '../../src/engines/incus/exec.ts';
import { GuestKeys } from '../../src/engines/incus/guest-keys.ts';
import { berthKeys } from '../../src/engines/incus/instance-config.ts';
import { instanceName, instancePath, type Place } from '../../src/engines/incus/names.ts';
import { Sftp } from '../../src/engines/incus/sftp.ts';
import { type IncusPlace, openIncusPlace } from '../support/incus.ts';
import { eventually } from '../support/waiting.ts';

export const LOGIN_USER_ID = 1000;
export const KEY_FILE = '/home/ubuntu/.ssh/authorized_keys';

const longMs = 60_000;
const quiet = () => undefined;
const now = () => new Date();

export class KeyGuest {
  readonly incus: IncusPlace;
  readonly place: Place;
  readonly keys: GuestKeys;

  private constructor(incus: IncusPlace, name: string) {
    this.incus = incus;
    this.place = { name, project: incus.project };
    this.keys = this.keysBy(incus.client);
  }

  /** Its disk has room for what the image and some megabytes need. */
  static async open(name: string): Promise<KeyGuest> {
    const called = instanceName(name);
    const guest = new KeyGuest(await openIncusPlace(), called);
    const { client, pool, project } = guest.incus;
    const body = {
      name: called,
      type: 'container',
      start: true,
      profiles: [],
      config: { [berthKeys.kind]: 'instance', [berthKeys.ref]: name },
      source: { type: 'image', alias: 'berth-base' },
      devices: { root: { type: 'disk', path: '/', pool, size: '600MiB' } },
    };
    await client.change('POST', '/1.0/instances', body, { project, timeoutMs: 2 * longMs });
    await guest.whenUp();
    return guest;
  }

  /** Another of our own, as a service after a restart has it, or one that goes another way to the server. */
  keysBy(client: IncusClient, clock = now): GuestKeys {
    return new GuestKeys(client, new GuestExec(client), quiet, clock);
  }

  async whenUp(): Promise<void> {
    await eventually('the guest to run programs', longMs, async () =>
      (await this.run('test -d /home/ubuntu/.ssh').catch(() => 1)) === 0 ? true : undefined,
    );
  }

  /** The exit status. `$K` is the file. */
  async run(script: string, user = LOGIN_USER_ID): Promise<number> {
    const { client, project } = this.incus;
    const body = {
      command: ['/bin/sh', '-c', `K=${KEY_FILE}; cd /home/ubuntu; ${script}`],
      user,
      group: user,
      environment: { HOME: '/home/ubuntu' },
      'wait-for-websocket': false,
      'record-output': false,
      interactive: false,
    };
    const path = `${instancePath(this.place)}/exec`;
    const ended = await client.change('POST', path, body, { project, timeoutMs: longMs });
    return (ended as { return: number }).return;
  }

  async do(script: string, user = LOGIN_USER_ID): Promise<void> {
    assert.equal(await this.run(script, user), 0, script);
  }

  /** An empty file in a sound folder, whatever was there. */
  async clear(): Promise<void> {
    await this.do('rm -rf .ssh && mkdir -m 700 .ssh && umask 077 && : > $K');
  }

  async put(content: Buffer | string, path = KEY_FILE): Promise<void> {
    const type = { 'x-incus-type': 'file', 'x-incus-write': 'overwrite', 'x-incus-mode': '0600' };
    const owner = { 'x-incus-uid': String(LOGIN_USER_ID), 'x-incus-gid': String(LOGIN_USER_ID) };
    const { client, project } = this.incus;
    const headers = { 'content-type': 'application/octet-stream', ...type, ...owner };
    const options = { project, query: { path }, headers };
    await client.call('POST', `${instancePath(this.place)}/files`, Buffer.from(content), options);
  }

  async bytes(path = KEY_FILE): Promise<Buffer> {
    const { client, project } = this.incus;
    const options = { project, query: { path } };
    return (await client.call('GET', `${instancePath(this.place)}/files`, undefined, options)).body;
  }

  async text(path = KEY_FILE): Promise<string> {
    return (await this.bytes(path)).toString();
  }

  async setState(action: 'start' | 'stop' | 'freeze' | 'unfreeze'): Promise<void> {
    const { client, project } = this.incus;
    const body = { action, force: action === 'stop', timeout: 20 };
    const options = { project, timeoutMs: longMs };
    await client.change('PUT', `${instancePath(this.place)}/state`, body, options);
  }

  /** While it is stopped. */
  async onDisk<T>(work: (sftp: Sftp) => Promise<T>): Promise<T> {
    const sftp = await Sftp.open(this.incus.client, this.place, performance.now() + longMs);
    try {
      return await work(sftp);
    } finally {
      sftp.close();
    }
  }

  /** How many programs Incus still runs in it. */
  async programCount(): Promise<number> {
    const { client, project } = this.incus;
    const all = await client.get<{ running?: { description: string }[] }>('/1.0/operations', {
      project,
      query: { recursion: '1' },
    });
    return (all.running ?? []).filter((one) => one.description === 'Executing command').length;
  }
}

/** Of the requests that hold a text, the one of this number, from 1. */
class Choice {
  seen = 0;
  readonly #text: string;
  readonly #number: number;

  constructor(text: string, number: number) {
    this.#text = text;
    this.#number = number;
  }

  /** Whether it is this one, which is counted. */
  isMeant(request: Buffer): boolean {
    if (!request.includes(this.#text)) return false;
    this.seen += 1;
    return this.seen === this.#number;
  }
}

/** A way to the server that can be shut, opened, made to lose answers or to be late with them, and to hold requests back. */
export class Relay {
  readonly client: IncusClient;
  readonly #path: string;
  readonly #target: string;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  /** Requests that hold this text are passed on, and the connection is cut before they are answered. */
  #losing: { text: string; times: number; spared: number } | undefined;
  #delaying: { choice: Choice; ms: number } | undefined;
  #holding: { choice: Choice; letGo?: () => void } | undefined;

  constructor(folder: string, url: string) {
    this.#path = join(folder, 'relay.socket');
    this.#target = url.slice('unix:'.length);
    const endpoints = [`unix:${this.#path}`];
    this.client = new IncusClient({ endpoints, tls: undefined, project: 'default' });
  }

  lose(text: string, times = 1, spared = 0): void {
    this.#losing = { text, times, spared };
  }

  /** What is answered to the request of this number, from 1, that holds this text comes so much later, its end too. */
  delay(text: string, number: number, ms: number): void {
    this.#delaying = { choice: new Choice(text, number), ms };
  }

  /** The request of this number, from 1, that holds this text is kept until `letGo`. */
  hold(text: string, number: number): void {
    this.#holding = { choice: new Choice(text, number) };
  }

  /** How many requests with that text there were, and whether one of them is kept. */
  get held(): { seen: number; isHolding: boolean } {
    return { seen: this.#holding?.choice.seen ?? 0, isHolding: this.#holding?.letGo !== undefined };
  }

  letGo(): void {
    this.#holding?.letGo?.();
    this.#holding = undefined;
  }

  async open(): Promise<void> {
    const server = createServer((socket) => this.#join(socket));
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.#path, resolve));
  }

  #join(socket: Socket): void {
    const other = connectTo(this.#target);
    let delayMs = 0;
    const late = (work: () => void) => (delayMs > 0 ? setTimeout(work, delayMs) : work());
    for (const [one, to] of [
      [socket, other],
      [other, socket],
    ] as const) {
      this.#sockets.add(one);
      one.on('error', () => late(() => to.destroy()));
      one.on('close', () => late(() => to.destroy()));
    }
    let isLosing = false;
    socket.on('data', (chunk: Buffer) => {
      if (this.#losing && this.#losing.times > 0 && chunk.includes(this.#losing.text)) {
        if (this.#losing.spared > 0) this.#losing.spared -= 1;
        else {
          this.#losing.times -= 1;
          isLosing = true;
        }
      }
      if (this.#delaying?.choice.isMeant(chunk)) delayMs = this.#delaying.ms;
      if (this.#holding?.choice.isMeant(chunk)) this.#holding.letGo = () => other.write(chunk);
      else other.write(chunk);
    });
    other.on('data', (chunk: Buffer) => {
      if (isLosing) socket.destroy();
      else late(() => socket.write(chunk));
    });
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
    this.client.close();
    const server = this.#server;
    this.#server = undefined;
    if (server) await new Promise((resolve) => server.close(resolve));
  }
}
