/** Waits until a server says the first words of SSH. */

import { createConnection, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Endpoint } from '../engine.ts';

const pauseMs = 5;
/** A packet that was sent before there was anybody to hear it would only be repeated after a second. */
const nextAttemptMs = 150;
/** But a far or a busy server takes longer than that to answer: attempts overlap. */
const connectMs = 3_000;
const bannerMs = 10_000;

export interface BannerWait {
  readonly timeoutMs: number;
  /** Called now and then; rejects when there is nothing to wait for any more. */
  readonly check: () => Promise<void>;
  readonly checkEveryMs: number;
}

/** True once the banner came, false when the time was up. */
export async function waitForBanner(endpoint: Endpoint, wait: BannerWait): Promise<boolean> {
  const giveUpAt = performance.now() + wait.timeoutMs;
  let checkAt = performance.now() + wait.checkEveryMs;
  let attempts: Attempt[] = [];
  // By any of them, at any time: also in a pause, or while it is checked.
  const banner = new Heard();
  try {
    while (!banner.isHeard && performance.now() < giveUpAt) {
      attempts = attempts.filter(({ isOver }) => !isOver);
      // Whoever took one connection is asked for no more.
      const taken = attempts.find(({ isConnected }) => isConnected);
      const current = taken ?? new Attempt(endpoint, banner);
      if (taken) closeAll(attempts.filter((attempt) => attempt !== taken));
      attempts = taken ? [taken] : [...attempts, current];
      await Promise.race([current.over, banner.heard, sleep(nextAttemptMs)]);
      if (banner.isHeard) break;
      if (performance.now() > checkAt) {
        await wait.check();
        checkAt = performance.now() + wait.checkEveryMs;
      }
      await sleep(pauseMs);
    }
    return banner.isHeard;
  } finally {
    closeAll(attempts);
  }
}

function closeAll(attempts: readonly Attempt[]): void {
  for (const attempt of attempts) attempt.close();
}

class Heard {
  isHeard = false;
  readonly #heard = Promise.withResolvers<void>();
  readonly heard = this.#heard.promise;

  say(): void {
    this.isHeard = true;
    this.#heard.resolve();
  }
}

class Attempt {
  /** Resolves when it is known whether SSH answered. */
  readonly over: Promise<void>;
  isConnected = false;
  isOver = false;
  readonly #socket: Socket;

  constructor({ ip, port }: Endpoint, banner: Heard) {
    const socket = createConnection({ host: ip, port });
    this.#socket = socket;
    const over = Promise.withResolvers<void>();
    this.over = over.promise;
    const end = (answer: boolean) => {
      clearTimeout(timer);
      this.isOver = true;
      socket.destroy();
      if (answer) banner.say();
      over.resolve();
    };
    let timer = setTimeout(end, connectMs, false);
    socket.once('connect', () => {
      this.isConnected = true;
      clearTimeout(timer);
      timer = setTimeout(end, bannerMs, false);
    });
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (text.length >= 4) end(text.startsWith('SSH-'));
    });
    socket.once('error', () => end(false));
    socket.once('close', () => end(false));
  }

  close(): void {
    this.#socket.destroy();
  }
}
