/**
 * The keys of a guest that runs, by programs in it (guest-key-scripts.ts). What fails comes out as it is, an IncusError
 * or an EngineError; whoever calls decides whether to try again.
 */

import { createHash, randomBytes } from 'node:crypto';
import { KeyedLock } from '../../domain/keyed-lock.ts';
import type { GuestExec } from './exec.ts';
import {
  appendCommand,
  clockCommand,
  type Limits,
  readCommand,
  replaceCommand,
  sizeLimitBytes,
  status,
} from './guest-key-scripts.ts';
import { IncusError } from './incus-error.ts';
import { mayHaveLanded, statusError } from './key-failures.ts';
import { keyOf, type Place } from './names.ts';

/** Between the last moment for the guest to put a file in place and our giving up: the way back, and the ending of what hangs. */
export const marginMs = 2_000;

const recentLines = 64;

/** One change of one file, whose outcome is known when the file was replaced. */
export interface Change<T> {
  readonly of: (file: Buffer) => { file: Buffer; outcome: T };
  /** A missing file stays missing. */
  readonly makesFile: boolean;
  /** What an attempt that may not be heard of leaves behind, and what it is to answer. */
  expected?: { readonly hash: string; readonly outcome: T } | undefined;
}

/** What is known of a call from its earlier attempts. */
export interface Call {
  readonly place: Place;
  readonly giveUpAt: number;
  readonly startedAt: number;
  /** How far the guest's clock is ahead, in seconds. */
  skewSeconds: number;
  /** This attempt has asked Incus for a change. */
  hasBegun: boolean;
  isUnheard: boolean;
  /** Nothing is put in place: it is asked whether an earlier attempt did. */
  readonly asksOnly: boolean;
}

export class RunningKeys {
  readonly #exec: GuestExec;
  readonly #now: () => Date;
  /** For what takes more than one program. */
  readonly #locks = new KeyedLock();

  constructor(exec: GuestExec, now: () => Date) {
    this.#exec = exec;
    this.#now = now;
  }

  /** Adds the line where that is all there is to it; the status says. */
  append(call: Call, line: string, base64: string): Promise<number> {
    const since = call.isUnheard || call.asksOnly ? call.startedAt + call.skewSeconds : 0;
    // Whoever asks late finds what others added behind it.
    const recent = call.asksOnly ? recentLines : 1;
    const append = { line, base64, since, recent, nonce: nonce() };
    return this.#onTime(call, (limits) =>
      this.#exec.run(call.place, call.giveUpAt, () => begun(call, appendCommand(limits(), append))),
    );
  }

  /** Reads, changes and replaces, until nobody else did in between. */
  async change<T>(call: Call, change: Change<T>): Promise<T> {
    return this.#locks.run(keyOf(call.place), async () => {
      for (;;) {
        const bytes = await this.read(call);
        if (bytes === undefined && !change.makesFile) return change.of(Buffer.alloc(0)).outcome;
        const before = bytes === undefined ? 'none' : sha256(bytes);
        if (change.expected?.hash === before) return change.expected.outcome;
        const { file, outcome } = change.of(bytes ?? Buffer.alloc(0));
        const after = bytes === file ? before : sha256(file);
        change.expected = undefined;
        const code = await this.#replace(call, before, after, file).catch((error: unknown) => {
          change.expected = { hash: after, outcome };
          throw error;
        });
        if (code === status.landed || code === status.present) return outcome;
        if (code !== status.changed && code !== status.inputLost) throw statusError(code);
      }
    });
  }

  #replace(call: Call, before: string, after: string, file: Buffer): Promise<number> {
    const replacement = { before, after, nonce: nonce() };
    const exchange = {
      limitBytes: sizeLimitBytes,
      ...(before !== after && { input: file }),
    };
    return this.#onTime(call, async (limits) => {
      const command = () => begun(call, replaceCommand(limits(), replacement));
      const done = await this.#exec.exchange(call.place, call.giveUpAt, command, exchange);
      return done.status;
    });
  }

  /** A guest that finds itself late when it is not has a clock of its own. */
  async #onTime(call: Call, work: (limits: () => Limits) => Promise<number>): Promise<number> {
    const attempt = async (): Promise<number> => {
      const code = await work(() => this.#limits(call));
      if (mayHaveLanded(code)) call.isUnheard = true;
      return code;
    };
    const code = await attempt();
    if (code !== status.late || call.skewSeconds !== 0 || call.asksOnly) return code;
    const command = () => clockCommand(this.#seconds(call));
    const exchange = { limitBytes: 64 };
    const { output } = await this.#exec.exchange(call.place, call.giveUpAt, command, exchange);
    // The host's clock is read after the guest's: what was held up on the way makes the deadline earlier.
    call.skewSeconds = Number.parseInt(output.toString(), 10) - this.epoch() || 0;
    return attempt();
  }

  #limits(call: Call): Limits {
    const leftMs = call.giveUpAt - performance.now() - marginMs;
    const until = Math.floor((this.#now().getTime() + leftMs) / 1000) + call.skewSeconds;
    return { until: call.asksOnly ? 0 : until, seconds: this.#seconds(call) };
  }

  #seconds({ giveUpAt }: Call): number {
    const leftMs = giveUpAt - performance.now() - marginMs;
    if (leftMs > 0) return Math.max(1, Math.floor(leftMs / 1000));
    throw new IncusError('timeout', 'There was no time left to ask the guest.');
  }

  /** In seconds, on the host's clock. */
  epoch(): number {
    return Math.floor(this.#now().getTime() / 1000);
  }

  /** Undefined when there is no such file. */
  async read(call: Call): Promise<Buffer | undefined> {
    const command = () => readCommand(this.#seconds(call));
    const exchange = { limitBytes: sizeLimitBytes + 1 };
    const { status: code, output } = await this.#exec.exchange(
      call.place,
      call.giveUpAt,
      command,
      exchange,
    );
    if (code === status.missing) return undefined;
    if (code !== status.shown) throw statusError(code);
    return output;
  }
}

export const newCall = (
  call: Pick<Call, 'place' | 'giveUpAt' | 'startedAt'> & { readonly asksOnly?: boolean },
): Call => ({ asksOnly: false, ...call, skewSeconds: 0, hasBegun: false, isUnheard: false });

function begun(call: Call, command: readonly string[]): readonly string[] {
  call.hasBegun = true;
  return command;
}

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const nonce = (): string => randomBytes(9).toString('hex');
