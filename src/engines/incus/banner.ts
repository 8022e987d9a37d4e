/** Waits until a server says the first words of SSH. */

import { createConnection } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Endpoint } from '../engine.ts';

const pauseMs = 5;
/** One that was sent before there was anybody to hear it would only be repeated after a second. */
const attemptMs = 150;

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
  while (!(await saysSsh(endpoint, attemptMs))) {
    if (performance.now() > giveUpAt) return false;
    if (performance.now() > checkAt) {
      await wait.check();
      checkAt = performance.now() + wait.checkEveryMs;
    }
    await sleep(pauseMs);
  }
  return true;
}

function saysSsh({ ip, port }: Endpoint, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: ip, port });
    const end = (answer: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer);
    };
    let timer = setTimeout(end, timeoutMs, false);
    let text = '';
    socket.once('connect', () => {
      clearTimeout(timer);
      timer = setTimeout(end, 10 * timeoutMs, false);
    });
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (text.length >= 4) end(text.startsWith('SSH-'));
    });
    socket.once('error', () => end(false));
    socket.once('close', () => end(false));
  });
}
