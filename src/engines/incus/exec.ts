/**
 * Runs programs inside a guest as its login user.
 *
 * What is not obvious:
 *
 * - Each program keeps a process on the host until it has ended, and a guest may make all of them hang. So only a few at
 *   a time run in a guest, and one that is late keeps its place until it has really ended: more than those it can never
 *   hold.
 * - Input and output are websockets, whether anything is to be said or not. Without them Incus (6.0) gives the program in
 *   a container a log file of its own for its output, in which a guest can fill the host's disk, and kills the one in a
 *   virtual machine before it has ended (status -1). A recorded output is written into the guest's disk quota, which may
 *   be full. The program begins when 0, 1 and 2 are connected, and closing 1 before its end ends it. A text message is
 *   the end of a stream. Incus closes all of them when the program has ended, and that may be heard of 0 and 2 before the
 *   end of 1 is: once it has begun, 1 alone tells whether the server is there. The fourth, `control`, is left alone: Incus
 *   (6.0.4) does not wait for it, and one that is connected in the moment in which the program ends makes the server
 *   crash, or the operation never end.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import WebSocket from 'ws';
import { SharedTurns } from '../../domain/shared-turns.ts';
import type { CallOptions, IncusClient } from './client.ts';
import { IncusError, isIncusError } from './incus-error.ts';
import { instancePath, keyOf, type Place } from './names.ts';

/** The command for the time that is left when its turn has come. */
export type CommandFor = (leftMs: number) => readonly string[];

export interface Exchange {
  readonly input?: Buffer;
  /** More output than this is an error. */
  readonly limitBytes: number;
}

const atOnce = 4;
const lookAgainMs = 3_000;
const runningCode = 103;
const neverRan = /^Command not (?:found|executable)/;
/** Of a program whose end Incus has not seen: its connection to the agent of a virtual machine was cut, say. */
const unknownStatus = -1;
/** For the complaints of a program that has nothing to say. */
const silenceBytes = 4096;

const asLoginUser = {
  user: 1000,
  group: 1000,
  cwd: '/',
  environment: {
    HOME: '/home/ubuntu',
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    LC_ALL: 'C',
  },
  interactive: false,
  'wait-for-websocket': true,
  'record-output': false,
};

interface Started {
  readonly operation: string;
  readonly metadata: { readonly metadata: { readonly fds?: Readonly<Record<string, string>> } };
}

export class GuestExec {
  readonly #client: IncusClient;
  readonly #turns = new SharedTurns(atOnce);

  constructor(client: IncusClient) {
    this.#client = client;
  }

  /** The exit status. `giveUpAt` is on the clock of `performance.now()`. */
  async run(place: Place, giveUpAt: number, command: CommandFor): Promise<number> {
    const limits = { limitBytes: silenceBytes };
    return (await this.exchange(place, giveUpAt, command, limits)).status;
  }

  /** The same with something to read on standard input, and what came on standard output. */
  exchange(
    place: Place,
    giveUpAt: number,
    command: CommandFor,
    exchange: Exchange,
  ): Promise<{ status: number; output: Buffer }> {
    return this.#inTurn(place, giveUpAt, command, async (started) => {
      const streams = new Streams(this.#client, started, exchange, giveUpAt);
      try {
        const status = this.#statusOf(started.operation, giveUpAt);
        const [output] = await Promise.all([streams.output, status]);
        return { status: await status, output };
      } finally {
        streams.close();
      }
    });
  }

  #inTurn<T>(
    place: Place,
    giveUpAt: number,
    command: CommandFor,
    work: (started: Started) => Promise<T>,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const turn = async () => {
        const leftMs = timeLeft(giveUpAt);
        const started = await this.#start(place, command(leftMs), leftMs);
        await work(started).then(resolve, async (error: unknown) => {
          reject(error);
          // With the server, the operation is gone.
          if (!isIncusError(error, 'unknown_outcome', 'unreachable'))
            await this.#ended(started.operation);
        });
      };
      this.#turns
        .run(keyOf(place), leftUntil(giveUpAt), turn)
        .then((done) => done ?? reject(hanging()))
        .catch(reject);
    });
  }

  async #start(
    { name, project }: Place,
    command: readonly string[],
    timeoutMs: number,
  ): Promise<Started> {
    const body = { ...asLoginUser, command };
    const options: CallOptions = { project, timeoutMs };
    const path = `${instancePath({ name, project })}/exec`;
    const answer = await this.#client.call('POST', path, body, options);
    return JSON.parse(answer.body.toString()) as Started;
  }

  async #statusOf(operation: string, giveUpAt: number): Promise<number> {
    const { metadata } = await this.#client
      .wait(operation, timeLeft(giveUpAt))
      .catch((error: unknown) => {
        throw isOfGuest(error) ? untold(error) : error;
      });
    const { return: status } = metadata as { return: number };
    if (status === unknownStatus) throw untold();
    return status;
  }

  /** Resolves when the program has ended or Incus does not know it any more; keeps no process alive for that. */
  async #ended(operation: string): Promise<void> {
    const { pathname, searchParams } = new URL(operation, 'http://incus');
    const query = Object.fromEntries(searchParams);
    for (let pauseMs = 100; ; pauseMs = Math.min(2 * pauseMs, lookAgainMs)) {
      const state = await this.#client
        .get<{ status_code: number }>(pathname, { query, timeoutMs: lookAgainMs })
        .catch((error: unknown) =>
          isIncusError(error, 'timeout', 'unreachable', 'host_down') ? 'unknown' : undefined,
        );
      if (state !== 'unknown' && state?.status_code !== runningCode) return;
      await sleep(pauseMs, undefined, { ref: false });
    }
  }
}

const untold = (cause?: unknown): IncusError =>
  new IncusError('unknown_outcome', 'Incus does not know how the program in the guest ended.', {
    cause,
  });

/**
 * Of a program that was started. What went wrong with it is told in words that come, in a virtual machine, from an agent
 * that is its owner's: they are believed only where it makes no difference.
 */
const isOfGuest = (error: unknown): boolean =>
  isIncusError(error, 'refused', 'busy', 'stale', 'not_found', 'not_running', 'address_taken') &&
  !neverRan.test(error.message);

const leftUntil = (giveUpAt: number): number => Math.max(0, giveUpAt - performance.now());

function timeLeft(giveUpAt: number): number {
  const leftMs = leftUntil(giveUpAt);
  if (leftMs > 0) return leftMs;
  throw new IncusError('timeout', 'There was no time left to ask the guest.');
}

const hanging = (): IncusError =>
  new IncusError('timeout', 'Earlier programs in the guest have not ended.');

/** The streams of one program. */
class Streams {
  readonly output: Promise<Buffer>;
  readonly #sockets: WebSocket[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor(
    client: IncusClient,
    { operation, metadata }: Started,
    { input, limitBytes }: Exchange,
    giveUpAt: number,
  ) {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.output = promise;
    // Whoever waits for the status first must not find this one unhandled.
    promise.catch(() => undefined);
    this.#timer = setTimeout(
      () => reject(new IncusError('timeout', 'The program in the guest has not ended in time.')),
      leftUntil(giveUpAt),
    );
    const lost = (cause?: unknown) =>
      reject(new IncusError('unknown_outcome', 'The connection to Incus was lost.', { cause }));
    const { pathname, searchParams } = new URL(operation, 'http://incus');
    const open = (name: string): WebSocket => {
      const { base, options } = client.current?.socket ?? { base: '', options: {} };
      searchParams.set('secret', metadata.metadata.fds?.[name] ?? '');
      const settings = { ...options, perMessageDeflate: false, maxPayload: 4 * 1024 * 1024 };
      const url = `${base}${pathname}/websocket?${searchParams}`;
      const socket = new WebSocket(url, settings);
      let isOpen = false;
      socket.on('open', () => {
        isOpen = true;
      });
      socket.on('error', (error) => {
        if (!isOpen || name === '1') lost(error);
      });
      this.#sockets.push(socket);
      return socket;
    };
    const stdin = open('0');
    stdin.on('open', () => {
      if (input) stdin.send(input);
      stdin.send('');
    });
    const chunks: Buffer[] = [];
    const limited = (socket: WebSocket, take: (data: Buffer, isBinary: boolean) => void) => {
      let sizeBytes = 0;
      socket.on('message', (data: Buffer, isBinary: boolean) => {
        sizeBytes += data.length;
        if (sizeBytes > limitBytes) reject(new IncusError('refused', 'Too much output.'));
        else take(data, isBinary);
      });
    };
    const stdout = open('1');
    limited(stdout, (data, isBinary) => {
      if (isBinary) chunks.push(data);
      else resolve(Buffer.concat(chunks));
    });
    stdout.on('close', () => lost());
    limited(open('2'), () => undefined);
  }

  close(): void {
    clearTimeout(this.#timer);
    for (const socket of this.#sockets) socket.terminate();
  }
}
