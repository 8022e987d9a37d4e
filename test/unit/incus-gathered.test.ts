import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gathered } from '../../src/engines/incus/gathered.ts';

const done = (word: string): Promise<string> => Promise.resolve(word);

test('does some alone, and together what came meanwhile', async () => {
  const groups: (readonly number[])[] = [];
  const gathered = new Gathered<number, string>(2, async (items) => {
    groups.push(items);
    return items.map((item) => `together ${item}`);
  });
  const alone = [1, 2].map((one) => gathered.run('a', one, () => done(`alone ${one}`)));
  const later = [3, 4, 5].map((one) => gathered.run('a', one, () => done('never')));
  const other = gathered.run('b', 6, () => done('alone 6'));
  assert.deepEqual(await Promise.all([...alone, ...later, other]), [
    'alone 1',
    'alone 2',
    'together 3',
    'together 4',
    'together 5',
    'alone 6',
  ]);
  assert.deepEqual(groups, [[3, 4, 5]]);
  assert.equal(await gathered.run('a', 7, () => done('alone 7')), 'alone 7');
});

test('goes on after a failure, which is that of all who were together', async () => {
  const gathered = new Gathered<number, string>(1, () => Promise.reject(new Error('together')));
  const first = gathered.run('a', 1, () => Promise.reject(new Error('alone')));
  const rest = [2, 3].map((one) => gathered.run('a', one, () => done('never')));
  await assert.rejects(first, /alone/);
  for (const one of rest) await assert.rejects(one, /together/);
  assert.equal(await gathered.run('a', 4, () => done('alone 4')), 'alone 4');
});
