/** Kills the service at every step boundary it knows of, starts it again, and looks for anything lost or left. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type Machine, openHouse } from '../support/house.ts';
import { keyFileLines } from '../support/key-file.ts';
import { isFree } from '../support/ports.ts';
import { sleep } from '../support/waiting.ts';
import { ACTIONS, type Action } from './actions.ts';
import { type Acknowledged, assertKeysKept, assertNoPrivateKeys, settled } from './aftermath.ts';

const DEATH_TIMEOUT_MS = 15_000;
/** So few ports that they have to be used again and again. */
const house = await openHouse({ sshPorts: 3 });
after(() => house.dispose());
const { api, service } = house;
const listed = await service.command(['serve'], { BERTH_TEST_LIST_CRASH_POINTS: '1' });
const points = listed.split('\n').filter((line) => line !== '');
const main: Machine = await house.machine();
const acknowledged: Acknowledged[] = [{ ...main }];
const counts = { points: points.length, crashes: 0, keysChecked: 0, unansweredKeysLeft: 0 };

const kindOf = (point: string): string => point.split(':')[0] ?? '';

test('the service lists its crash points, and this suite knows every kind', () => {
  assert.ok(points.length >= 20, listed);
  for (const point of points) assert.match(point, /^[a-z_.]+:[a-z_]+:(before|after)$/);
  const known = new Set(ACTIONS.map((action) => action.kind));
  const kinds = new Set(points.map(kindOf));
  assert.deepEqual(
    [...kinds].filter((kind) => !known.has(kind)),
    [],
    'kinds without an action',
  );
  assert.deepEqual(
    [...known].filter((kind) => !kinds.has(kind)),
    [],
    'actions without a point',
  );
});

/** The process has to die by itself, at the point. */
async function assertDies(point: string): Promise<void> {
  const pid = service.pid;
  const late = sleep(DEATH_TIMEOUT_MS, undefined, { ref: false });
  const exit = await Promise.race([service.waitForExit(), late]);
  assert.ok(exit !== undefined, `${point} was never reached`);
  assert.equal(exit.signal, 'SIGKILL', `process ${pid} at ${point}: ${JSON.stringify(exit)}`);
}

async function crash(point: string, action: Action): Promise<void> {
  await action.prepare(house, main);
  await service.stop();
  await service.start({ BERTH_TEST_CRASH_AT: point });
  const answer = action.trigger(house, main).then(
    () => undefined,
    (error: unknown) => error,
  );
  await assertDies(point);
  counts.crashes += 1;
  const error = await answer;
  if (error instanceof assert.AssertionError) throw error;
}

async function linesNow(): Promise<string[]> {
  return house.skipLogins === false ? keyFileLines(main.login) : [];
}

async function check(action: Action, linesBefore: readonly string[], point: string): Promise<void> {
  await settled(house);
  assert.equal(await action.problem(house, main), undefined);
  if ((await api.instance(main.uuid)).status === 'STOPPED') {
    await api.startInstance(main.uuid);
    await api.reach(main.uuid, 'RUNNING', ['STOPPED', 'STARTING']);
  }
  await assertKeysKept(house, main, acknowledged);
  counts.keysChecked += acknowledged.length;
  const left = (await linesNow()).length - linesBefore.length;
  // Between the second commit and the answer nobody can know whether the answer left; losing an acknowledged key is worse.
  if (point === 'add_key:confirmed:after') counts.unansweredKeysLeft += left;
  else assert.equal(left, 0, 'a key that was never answered is gone');
  assertNoPrivateKeys(house);
}

/** Leaves the main instance alone with its snapshot, so that the next point starts from the same place. */
async function tidy(): Promise<void> {
  for (const one of (await api.instances()).values()) {
    if (one.uuid === main.uuid) continue;
    await api.deleteInstance(one.uuid);
    await api.gone(one.uuid);
  }
}

async function survive(point: string, action: Action): Promise<void> {
  const linesBefore = await linesNow();
  try {
    await crash(point, action);
  } finally {
    await service.end('SIGKILL');
    await service.start();
  }
  await check(action, linesBefore, point);
  await tidy();
}

for (const point of points) {
  for (const action of ACTIONS.filter((one) => one.kind === kindOf(point))) {
    test(`killed at ${point} (${action.name})`, () => survive(point, action));
  }
}

test('after all that everything can be deleted, and every port is free again', async () => {
  for (const one of await api.snapshots()) await api.deleteSnapshot(one.id);
  await api.deleteInstance(main.uuid);
  await api.gone(main.uuid);
  const state = await settled(house);
  assert.deepEqual(state, { instances: [], snapshots: [] });
  for (let port = service.sshPorts.from; port <= service.sshPorts.to; port += 1) {
    assert.ok(await isFree(port), `port ${port} is free`);
  }
  console.log(`crash points: ${JSON.stringify(counts)}`);
});
