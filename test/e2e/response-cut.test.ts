/** A generated key whose answer could not be delivered is taken back. */

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { keyFileLines } from '../support/key-file.ts';
import { firstAnswer } from '../support/raw-socket.ts';
import { eventuallyPasses, pooled } from '../support/waiting.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service, skipLogins: skip } = house;
const main = await house.machine();
const SETTLE_MS = 2000;

/**
 * Asks for a generated key and destroys the socket after this time. True when the answer came before. What lies in the
 * kernel at that moment is read first (timers, then input, then immediates: one turn of the event loop), so that an
 * answer that was delivered is never taken for one that was cut.
 */
function addKeyAndCut(delayMs: number): Promise<boolean> {
  const { hostname, port } = new URL(service.baseUrl);
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    const cut = (): NodeJS.Immediate => setImmediate(() => socket.resetAndDestroy());
    socket.on('connect', () => setTimeout(cut, delayMs));
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', () => undefined);
    socket.once('close', () => resolve(firstAnswer(Buffer.concat(chunks))?.status === 200));
    socket.write(
      `POST /v1/instances/${main.id}/add_key HTTP/1.1\r\nHost: ${hostname}\r\n` +
        `Authorization: Bearer ${api.token}\r\n\r\n`,
    );
  });
}

/** How long an undisturbed add takes; the cuts are spread over six times that, as taking back takes its time too. */
async function usualTimeMs(): Promise<number> {
  const times: number[] = [];
  for (let count = 0; count < 7; count += 1) {
    const before = performance.now();
    await api.addKey(main.id);
    times.push(performance.now() - before);
  }
  return times.sort((a, b) => a - b)[3] ?? 10;
}

for (const width of [1, 8]) {
  test(`keys left = answers received, ${width} at once`, { skip }, async () => {
    const usual = await usualTimeMs();
    const before = (await keyFileLines(main.login)).length;
    const count = 40 + 20 * width;
    const delays = Array.from({ length: count }, (_, index) => (index / count) * 6 * usual * width);
    const answered = await pooled(delays, width, addKeyAndCut);
    const received = answered.filter((one) => one).length;
    console.log(`${count} requests cut, ${received} answered, usual time ${usual.toFixed(1)} ms`);
    assert.ok(received > 0 && received < count, 'some are cut and some are not');
    await eventuallyPasses(SETTLE_MS, async () => {
      assert.equal((await keyFileLines(main.login)).length - before, received);
    });
    assert.equal((await api.keys(main.id)).length, before + received, 'the API says the same');
    const { sshPublicKeys } = await api.instance(main.id);
    assert.equal(sshPublicKeys.length, before + received);
  });
}

test('a restart in the middle of the cuts takes the rest back', { skip }, async () => {
  const before = (await keyFileLines(main.login)).length;
  const cuts = Array.from({ length: 10 }, () => addKeyAndCut(1));
  const answered = (await Promise.all(cuts)).filter((one) => one).length;
  await service.restart('SIGKILL');
  await eventuallyPasses(SETTLE_MS * 2, async () => {
    assert.equal((await keyFileLines(main.login)).length, before + answered);
  });
});
