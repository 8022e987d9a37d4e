/** Kills the service at every step boundary it knows of, starts it again, and looks for anything lost or left. */

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { engineUnderTest } from '../support/incus.ts';
import { ACTIONS } from './actions.ts';
import { Lane } from './lane.ts';

/** Most of a recovery is waiting, so several services die side by side. */
const LANES = 3;
const lanes = await Promise.all(Array.from({ length: LANES }, () => Lane.open()));
after(async () => {
  for (const lane of lanes) await lane.house.dispose();
});

const [first] = lanes;
const listAsked = { BERTH_TEST_LIST_CRASH_POINTS: '1' };
const listed = (await first?.house.service.command(['serve'], listAsked)) ?? '';
const points = listed.split('\n').filter((line) => line !== '');
const kindOf = (point: string): string => point.split(':')[0] ?? '';
/** Where guests boot, each of what can lead to a point takes its turn, and what the database does alone is left out. */
const isSparing = engineUnderTest === 'incus';
const dying = points.filter((point) => !isSparing || !/:outcome:/.test(point));
const deaths = dying.flatMap((point, index) => {
  const actions = ACTIONS.filter((action) => action.kind === kindOf(point));
  const some = isSparing ? actions.filter((_, turn) => turn === index % actions.length) : actions;
  return some.map((action) => ({ point, action }));
});

test('the service lists its crash points, and this suite knows every kind', () => {
  assert.ok(points.length >= 20, listed);
  for (const point of points) assert.match(point, /^[a-z_.]+:[a-z_]+:(before|after)$/);
  const known = new Set(ACTIONS.map((action) => action.kind));
  const kinds = new Set(points.map(kindOf));
  const without = [...kinds].filter((kind) => !known.has(kind));
  assert.deepEqual(without, [], 'kinds without an action here');
  const unlisted = [...known].filter((kind) => !kinds.has(kind));
  assert.deepEqual(unlisted, [], 'kinds the service no longer lists');
});

describe('killed at every crash point', { concurrency: LANES }, () => {
  for (const [number, lane] of lanes.entries()) {
    describe(`service ${number}`, { concurrency: 1 }, () => {
      for (const { point, action } of deaths.filter((_, index) => index % LANES === number)) {
        test(`${point} (${action.name})`, () => lane.survive(point, action));
      }
      test('everything can be deleted, and every port is free again', () => lane.empty());
    });
  }
});

test('every point was reached', () => {
  const sum = (count: (lane: Lane) => number): number =>
    lanes.reduce((total, lane) => total + count(lane), 0);
  const counts = {
    points: points.length,
    crashes: sum((lane) => lane.crashes),
    keysChecked: sum((lane) => lane.keysChecked),
    unansweredKeysLeft: sum((lane) => lane.unansweredKeysLeft),
  };
  console.log(`crash points: ${JSON.stringify(counts)}`);
  assert.equal(counts.crashes, deaths.length);
});
