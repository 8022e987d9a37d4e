import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError, loadConfig } from '../../src/config.ts';

const overcommitOf = (text?: string) => loadConfig({ BERTH_OVERCOMMIT: text }).overcommit;
const usual = { cpu: 4, memory: 1, disk: 1 };

test('what is left out is as by default', () => {
  assert.deepEqual(overcommitOf(undefined), usual);
  assert.deepEqual(overcommitOf(''), usual);
  assert.deepEqual(overcommitOf('memory=1.5'), { ...usual, memory: 1.5 });
  assert.deepEqual(overcommitOf(' disk = 0.8 , cpu=16 '), { cpu: 16, memory: 1, disk: 0.8 });
  assert.deepEqual(overcommitOf('disk=1000,cpu=0.1,memory=2'), { cpu: 0.1, memory: 2, disk: 1000 });
});

for (const text of [
  '4',
  'cpu',
  'cpu=',
  'cpu=0',
  'cpu=0.09',
  'cpu=1001',
  'cpu=-1',
  'cpu=1e3',
  'gpu=2',
])
  test(`${text} is named as wrong`, () => {
    assert.throws(
      () => overcommitOf(text),
      (error: Error) =>
        error instanceof ConfigError &&
        error.message.includes(`BERTH_OVERCOMMIT is "${text}", but must be factors`),
    );
  });

test('a factor that is given twice, or with anything else, is wrong', () => {
  for (const text of ['cpu=1,cpu=2', 'cpu=1,', 'cpu=1 memory=2', 'cpu=NaN', '__proto__=1'])
    assert.throws(() => overcommitOf(text), ConfigError);
});
