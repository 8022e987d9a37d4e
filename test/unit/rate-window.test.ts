import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RateWindows } from '../../src/domain/rate-window.ts';

const limit = { requests: 3, windowSeconds: 10 };

function takes(windows: RateWindows, caller: string, times: number, nowMs: number): boolean[] {
  return Array.from({ length: times }, () => windows.take(caller, nowMs));
}

test('as many as the limit fit, and each caller has a window of its own', () => {
  const windows = new RateWindows(limit);
  assert.deepEqual(takes(windows, 'one', 5, 0), [true, true, true, false, false]);
  assert.deepEqual(takes(windows, 'other', 1, 0), [true]);
});

test('a window begins with the first request, and ends to the millisecond', () => {
  const windows = new RateWindows(limit);
  takes(windows, 'one', 3, 7000);
  assert.equal(windows.take('one', 16_999), false);
  assert.equal(windows.take('one', 17_000), true);
  assert.deepEqual(windows.standing('one', 17_000), { limit: 3, remaining: 2, resetSeconds: 10 });
});

test('asking whether there is room counts nothing', () => {
  const windows = new RateWindows(limit);
  for (let count = 0; count < 9; count++) assert.equal(windows.hasRoom('one', 0), true);
  assert.equal(windows.size, 0);
  takes(windows, 'one', 3, 0);
  assert.equal(windows.hasRoom('one', 0), false);
  assert.equal(windows.hasRoom('one', 10_000), true);
});

test('whoever waits for the seconds that were told is let in', () => {
  for (const startedAt of [0, 1, 999, 1500]) {
    for (const askedAfter of [0, 1, 1000, 9001, 9999]) {
      const windows = new RateWindows(limit);
      takes(windows, 'one', 3, startedAt);
      const askedAt = startedAt + askedAfter;
      const { resetSeconds, remaining } = windows.standing('one', askedAt);
      assert.equal(remaining, 0);
      assert.ok(resetSeconds >= 1 && Number.isInteger(resetSeconds));
      assert.equal(windows.take('one', askedAt + resetSeconds * 1000), true);
    }
  }
});

test('refusals do not lengthen the wait', () => {
  const windows = new RateWindows(limit);
  takes(windows, 'one', 3, 0);
  for (let at = 0; at < 10_000; at += 100) assert.equal(windows.take('one', at), false);
  assert.equal(windows.take('one', 10_000), true);
});

test('a clock that was set back makes nobody wait for the lost hour again', () => {
  const windows = new RateWindows(limit);
  takes(windows, 'one', 4, 3_600_000);
  assert.equal(windows.take('one', 0), true);
  assert.ok(windows.standing('one', 0).resetSeconds <= 10);
});

test('a million callers at once take no more memory than the limit on callers', () => {
  const windows = new RateWindows(limit, 1000);
  for (let caller = 0; caller < 1_000_000; caller++) windows.take(`caller ${caller}`, 0);
  assert.equal(windows.size, 1000);
  assert.equal(windows.take('a real one', 0), true, 'newcomers are let in');
});

test('callers that are gone are forgotten as others come', () => {
  const windows = new RateWindows(limit, 100_000);
  for (let caller = 0; caller < 1000; caller++) windows.take(`early ${caller}`, 0);
  for (let caller = 0; caller < 1000; caller++) windows.take(`late ${caller}`, 10_000);
  assert.equal(windows.size, 1000);
});

test('a caller whose window began anew is not swept with the old ones', () => {
  const windows = new RateWindows(limit);
  takes(windows, 'one', 3, 0);
  takes(windows, 'one', 3, 10_000);
  for (let caller = 0; caller < 10; caller++) windows.take(`other ${caller}`, 10_001);
  assert.equal(windows.take('one', 10_002), false);
});

test('nobody hides the old ones behind a window that began anew', () => {
  const windows = new RateWindows(limit);
  for (const caller of ['a', 'b', 'c', 'again', 'd']) windows.take(caller, 0);
  windows.take('again', 10_000);
  for (const caller of ['x', 'y', 'z']) windows.take(caller, 10_001);
  assert.equal(windows.size, 4);
});

test('of the refusals of a window one is worth a line in the log', () => {
  const windows = new RateWindows(limit);
  takes(windows, 'one', 4, 0);
  assert.deepEqual(
    [0, 1, 2].map((at) => windows.noteRefusal('one', at)),
    [true, false, false],
  );
  takes(windows, 'one', 4, 10_000);
  assert.equal(windows.noteRefusal('one', 10_000), true);
});
