/**
 * Adds, removes and reads authorized keys in a guest. What the programs in the guest do is told in
 * guest-key-scripts.ts, and what the bytes mean in domain/authorized-keys.ts.
 *
 * - Adding to a running guest is one program, which ends with what it did. Where it cannot be sure, and for everything
 *   else, the file is read, the change is made here, and the whole new file is put in the place of the one that was
 *   read. When that one changed meanwhile, all of it is done again.
 * - A server that is away or restarts is asked again for some seconds: every program may run twice. When an attempt was
 *   not heard of, and the next one finds its work done, then that was its work.
 * - Many adds for one guest at once are gathered (gathered.ts) and made as one change.
 * - A container that is stopped has no programs; its disk is changed from outside.
 * - The answer comes before the caller's own deadline (10 s), so that what it says is what is in the file. When Incus
 *   was away for so long that nobody knows, it is found out later, and the error says so (`EngineError.outcome`).
 */

import { setTimeout as sleep } from 'node:timers/promises';
import {
  type AddKeyOutcome,
  type AuthorizedKey,
  authorizeKey,
  type KeyMatch,
  revokeKey,
} from '../../domain/authorized-keys.ts';
import { KeyedLock } from '../../domain/keyed-lock.ts';
import { EngineError } from '../engine.ts';
import type { IncusClient } from './client.ts';
import type { GuestExec } from './exec.ts';
import { Gathered } from './gathered.ts';
import { status } from './guest-key-scripts.ts';
import { IncusError, isIncusError } from './incus-error.ts';
import { keyError, mayHaveRun, mayPass, statusError } from './key-failures.ts';
import { keyOf, type Place } from './names.ts';
import { find, isOurs, notThere } from './objects.ts';
import type { Log } from './options.ts';
import { type Call, type Change, marginMs, newCall, RunningKeys, sha256 } from './running-keys.ts';
import { changeStopped, readStopped } from './stopped-keys.ts';

const patienceMs = 9_000;
const retryPauseMs = 300;
/** A virtual machine that its owner reboots is stopped and started by Incus. */
const resetMs = 3_000;
/** Incus may be away for long. */
const doubtMs = 3_600_000;
const longestAskPauseMs = 15_000;
/** It is somebody else's line, or none. */
const notThereNow: readonly number[] = [status.present, status.unsure, status.late];
const empty = Buffer.alloc(0);

interface Add {
  readonly place: Place;
  readonly key: AuthorizedKey;
  readonly giveUpAt: number;
}

/** One call, in a guest that runs and on the disk of one that does not. */
interface Attempts<T> {
  readonly running: (call: Call) => Promise<T>;
  readonly stopped: (call: Call) => Promise<T>;
}

export class GuestKeys {
  readonly #client: IncusClient;
  readonly #running: RunningKeys;
  readonly #log: Log;
  readonly #now: () => Date;
  /** For the disks of those that are stopped. */
  readonly #locks = new KeyedLock();
  /** Each holds the lock in the guest for two flushes of its disk: a crowd does that once. */
  readonly #adds = new Gathered<Add, AddKeyOutcome>(2, (adds) => this.#addTogether(adds));
  /** Errors after which a key may be in the file. */
  readonly #unheard = new WeakSet<EngineError>();

  constructor(client: IncusClient, exec: GuestExec, log: Log, now: () => Date) {
    this.#client = client;
    this.#running = new RunningKeys(exec, now);
    this.#log = log;
    this.#now = now;
  }

  async add(place: Place, key: AuthorizedKey): Promise<AddKeyOutcome> {
    // Throws for what is no key, before it could fail others.
    const { line } = authorizeKey(empty, key, this.#now());
    const giveUpAt = performance.now() + patienceMs;
    const startedAt = this.#running.epoch();
    const alone = () => this.#addAlone(place, key, line);
    return this.#adds.run(keyOf(place), { place, key, giveUpAt }, alone).catch((error: unknown) => {
      if (!(error instanceof EngineError) || !this.#unheard.has(error)) throw error;
      const { kind, message, detail, cause } = error;
      const outcome = this.#findOut(place, key, line, startedAt);
      throw new EngineError(kind, message, { ...(detail && { detail }), cause, outcome });
    });
  }

  #addAlone(place: Place, key: AuthorizedKey, line: string): Promise<AddKeyOutcome> {
    const [, base64 = ''] = key.publicKey.split(/[ \t]+/);
    const change = this.#adding([key]);
    const append = async (call: Call): Promise<readonly AddKeyOutcome[]> => {
      const code = await this.#running.append(call, line, base64);
      if (code === status.landed) return [{ outcome: 'added', line }];
      if (code === status.present) return [{ outcome: 'present', line }];
      if (code === status.unsure || code === status.changed)
        return this.#running.change(call, change);
      throw statusError(code);
    };
    const attempts = {
      running: append,
      stopped: (call: Call) => this.#changeStopped(call, change),
    };
    return this.#call(place, attempts).then(only);
  }

  /** All for the same guest, of which the first came first. */
  #addTogether(adds: readonly Add[]): Promise<readonly AddKeyOutcome[]> {
    const [{ place, giveUpAt }] = adds as [Add];
    const change = this.#adding(adds.map(({ key }) => key));
    return this.#call(place, this.#attemptsAt(change), giveUpAt);
  }

  #adding(keys: readonly AuthorizedKey[]): Change<readonly AddKeyOutcome[]> {
    const of = (before: Buffer) => {
      let file = before;
      const outcome = keys.map((key) => {
        const { file: after, ...rest } = authorizeKey(file, key, this.#now());
        file = after;
        return rest;
      });
      return { file, outcome };
    };
    return { of, makesFile: true };
  }

  remove(place: Place, match: KeyMatch): Promise<number> {
    const change: Change<number> = {
      of: (before) => {
        const { file, removed } = revokeKey(before, match);
        return { file, outcome: removed };
      },
      makesFile: false,
    };
    return this.#call(place, this.#attemptsAt(change));
  }

  #attemptsAt<T>(change: Change<T>): Attempts<T> {
    return {
      running: (call) => this.#running.change(call, change),
      stopped: (call) => this.#changeStopped(call, change),
    };
  }

  async read(place: Place): Promise<string> {
    const bytes = await this.#call(place, {
      running: (call) => this.#running.read(call),
      stopped: ({ giveUpAt }) => readStopped(this.#client, place, giveUpAt),
    });
    return (bytes ?? empty).toString();
  }

  /** Again while that may help; whatever is thrown in the end is an EngineError. */
  async #call<T>(
    place: Place,
    attempts: Attempts<T>,
    giveUpAt = performance.now() + patienceMs,
  ): Promise<T> {
    const call = newCall({ place, giveUpAt, startedAt: this.#running.epoch() });
    let reason: unknown;
    for (;;) {
      try {
        call.hasBegun = false;
        return await this.#once(call, attempts);
      } catch (caught) {
        // With no time left for another attempt, it is the one before that tells.
        const isSpent = isIncusError(caught, 'timeout') && !call.hasBegun;
        const error = isSpent ? (reason ?? caught) : caught;
        reason = error;
        const isLate = isIncusError(error, 'timeout') && call.hasBegun;
        if (isLate || mayHaveRun(error)) call.isUnheard = true;
        const mayTry = giveUpAt - performance.now() > marginMs + retryPauseMs;
        if (!mayPass(error) || !mayTry) {
          const thrown = keyError(error);
          if (call.isUnheard) this.#unheard.add(thrown);
          throw thrown;
        }
        this.#log('info', 'asking Incus again', { place, reason: String(error) });
        await sleep(retryPauseMs);
      }
    }
  }

  /** What became of an add that was not heard of, once Incus answers again. It is not made up for. */
  async #findOut(
    place: Place,
    { publicKey }: AuthorizedKey,
    line: string,
    startedAt: number,
  ): Promise<AddKeyOutcome | undefined> {
    const [, base64 = ''] = publicKey.split(/[ \t]+/);
    const askUntil = performance.now() + doubtMs;
    for (let pauseMs = retryPauseMs; ; pauseMs = Math.min(2 * pauseMs, longestAskPauseMs)) {
      await sleep(pauseMs, undefined, { ref: false });
      const giveUpAt = performance.now() + patienceMs;
      const call = newCall({ place, giveUpAt, startedAt, asksOnly: true });
      try {
        const code = await this.#running.append(call, line, base64);
        if (code === status.landed) return { outcome: 'added', line };
        if (notThereNow.includes(code)) return undefined;
      } catch (error) {
        const isAway = mayPass(error) || isIncusError(error, 'timeout');
        if (!isAway) return undefined;
      }
      if (performance.now() > askUntil) return undefined;
    }
  }

  async #once<T>(call: Call, { running, stopped }: Attempts<T>): Promise<T> {
    try {
      return await running(call);
    } catch (error) {
      if (!isIncusError(error, 'not_running')) throw error;
    }
    const { place } = call;
    const instance = await find(this.#client, place);
    if (instance === undefined || !isOurs(instance)) throw notThere();
    const isVirtual = instance.type === 'virtual-machine';
    const mayBeReset = isVirtual && call.giveUpAt - performance.now() > patienceMs - resetMs;
    if (instance.status !== 'Stopped' || mayBeReset) {
      // Started in between, or stopping: another look in a moment.
      const kind = instance.status === 'Error' ? 'host_down' : 'not_running';
      throw new IncusError(kind, `The instance is ${instance.status}.`);
    }
    if (isVirtual) {
      const message = 'The virtual machine is stopped. Start it, then try again.';
      throw new EngineError('not_running', message);
    }
    return this.#locks.run(keyOf(place), () => stopped(call));
  }

  async #changeStopped<T>({ place, giveUpAt }: Call, change: Change<T>): Promise<T> {
    let result: T | undefined;
    await changeStopped(this.#client, place, giveUpAt, (before) => {
      const { expected } = change;
      if (before && expected?.hash === sha256(before)) {
        result = expected.outcome;
        return before;
      }
      const { file, outcome } = change.of(before ?? empty);
      result = outcome;
      change.expected = { hash: sha256(file), outcome };
      return before === undefined && !change.makesFile ? undefined : file;
    });
    return result as T;
  }
}

const only = ([outcome]: readonly AddKeyOutcome[]): AddKeyOutcome => outcome as AddKeyOutcome;
