import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SharedTurns } from '../../src/domain/shared-turns.ts';

const never = 2 ** 31 - 1;

/** Work that ends when it is told to. */
function held(turns: SharedTurns, key: string, patienceMs = never) {
  const { promise, resolve } = Promise.withResolvers<void>();
  const state = { begun: false };
  const done = turns.run(key, patienceMs, async () => {
    state.begun = true;
    await promise;
  });
  return { state, done, end: resolve };
}

test('so many of one key run at once, the rest in the order of arrival', async () => {
  const turns = new SharedTurns(2);
  const jobs = [1, 2, 3, 4].map(() => held(turns, 'a'));
  const other = held(turns, 'b');
  const begun = () => jobs.map(({ state }) => state.begun);
  other.end();
  await other.done;
  assert.deepEqual(begun(), [true, true, false, false], 'another key does not wait');
  jobs[1]?.end();
  await jobs[1]?.done;
  await turns.run('b', never, async () => {});
  assert.deepEqual(begun(), [true, true, true, false]);
  for (const job of jobs) job.end();
  await Promise.all(jobs.map(({ done }) => done));
  assert.deepEqual(await turns.run('a', 0, async () => 5), { value: 5 });
});

test('who loses patience is never run, and takes nobody else the turn', async () => {
  const turns = new SharedTurns(1);
  const first = held(turns, 'a');
  const hasty = held(turns, 'a', 1);
  const patient = held(turns, 'a');
  assert.equal(await hasty.done, undefined);
  first.end();
  patient.end();
  assert.ok(await patient.done);
  assert.deepEqual([hasty.state.begun, patient.state.begun], [false, true]);
});

test('work that fails gives its turn back', async () => {
  const turns = new SharedTurns(1);
  const fails = turns.run('a', never, () => Promise.reject(new Error('no')));
  const waits = turns.run('a', never, async () => 'ran');
  await assert.rejects(fails, /no/);
  assert.deepEqual(await waits, { value: 'ran' });
});
