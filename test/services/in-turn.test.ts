import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { KeyedLock } from '../../src/domain/keyed-lock.ts';
import { inTurn } from '../../src/services/in-turn.ts';

test('one after the other, in the order of arrival; other keys do not wait', async () => {
  const locks = new KeyedLock();
  const order: number[] = [];
  const slow = (number: number) => async () => {
    await sleep(10);
    order.push(number);
    return number;
  };
  const results = await Promise.all([
    inTurn(locks, 'a', 1000, slow(1)),
    inTurn(locks, 'a', 1000, slow(2)),
    inTurn(locks, 'b', 1000, async () => order.push(0)),
  ]);
  assert.deepEqual(order, [0, 1, 2]);
  assert.deepEqual(results.slice(0, 2), [1, 2]);
});

test('who waits too long gets a timeout, and its work is never done', async () => {
  const locks = new KeyedLock();
  let done = false;
  const first = inTurn(locks, 'a', 1000, () => sleep(60));
  const second = inTurn(locks, 'a', 10, async () => {
    done = true;
  });
  await assert.rejects(second, { name: 'EngineError', kind: 'timeout' });
  await first;
  await inTurn(locks, 'a', 1000, async () => {});
  assert.equal(done, false);
});

test('an error reaches its caller alone', async () => {
  const locks = new KeyedLock();
  const failing = inTurn(locks, 'a', 1000, async () => {
    throw new Error('mine');
  });
  const next = inTurn(locks, 'a', 1000, async () => 'fine');
  await assert.rejects(failing, /mine/);
  assert.equal(await next, 'fine');
});
