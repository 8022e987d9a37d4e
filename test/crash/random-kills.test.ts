/** Kills the service at random moments of much concurrent work, again and again, and looks for anything lost or left. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import { type Machine, openHouse } from '../support/house.ts';
import { keyFileLines } from '../support/key-file.ts';
import { makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import { Random, seedFrom } from '../support/random.ts';
import { sleep } from '../support/waiting.ts';
import {
  type Acknowledged,
  assertKeysKept,
  assertNoPrivateKeys,
  type Settled,
  settled,
} from './aftermath.ts';

const ROUNDS = Number(process.env.BERTH_CRASH_ROUNDS ?? '12');
const LATEST_KILL_MS = 500;
const seed = seedFrom('BERTH_TEST_SEED');
const random = new Random(seed);
console.log(`random kills: BERTH_TEST_SEED=${seed}, ${ROUNDS} rounds`);

const house = await openHouse();
after(() => house.dispose());
const { api, service, keyFolder } = house;
const main: Machine = await house.machine();
const counts = { rounds: 0, requests: 0, answered: 0, keysKept: 0, unansweredKeysLeft: 0 };

/** What one round was told by the service before it died. */
class Round {
  readonly keys: Acknowledged[] = [];
  readonly created: string[] = [];
  readonly deleted: string[] = [];
  readonly snapshots: string[] = [];
  unansweredGenerated = 0;
  /** Public keys sent without an answer: they may be there. */
  readonly unansweredSupplied: string[] = [];
}

/** Counts a request; true when it was answered. A lost connection and a 409 (a change is under way) are no error. */
async function answered(request: () => Promise<void>): Promise<boolean> {
  counts.requests += 1;
  try {
    await request();
    counts.answered += 1;
    return true;
  } catch (error) {
    const isRefusal =
      error instanceof assert.AssertionError && !error.message.includes('"code":409');
    if (isRefusal) throw error;
    return false;
  }
}

async function addGenerated(round: Round): Promise<void> {
  const done = await answered(async () => {
    const keyFile = saveKey(keyFolder, (await api.addKey(main.uuid)).key);
    const publicKey = await publicHalf(keyFile);
    round.keys.push({ uuid: main.uuid, keyFile, publicKey });
  });
  if (!done) round.unansweredGenerated += 1;
}

async function addSupplied(round: Round): Promise<void> {
  const pair = await makeKeyPair(keyFolder);
  const done = await answered(async () => {
    await api.addKey(main.uuid, { public_key: pair.publicKey });
    round.keys.push({ uuid: main.uuid, ...pair });
  });
  if (!done) round.unansweredSupplied.push(pair.publicKey);
}

async function createOne(round: Round, template: string): Promise<void> {
  await answered(async () => {
    const body = { ...SMALL_INSTANCE, template, public_key: main.publicKey };
    round.created.push((await api.createInstance(body)).uuid);
  });
}

async function deleteOne(round: Round, uuid: string): Promise<void> {
  await answered(async () => {
    await api.deleteInstance(uuid);
    round.deleted.push(uuid);
  });
}

async function takeSnapshot(round: Round, name: string): Promise<void> {
  await answered(async () => {
    await api.createSnapshot(main.uuid, name);
    round.snapshots.push(name);
  });
}

async function dropSnapshot(id: string): Promise<void> {
  await answered(() => api.deleteSnapshot(id));
}

/** Everything at once, each from its own moment on. */
function work(round: Round, number: number, before: Settled): Promise<unknown> {
  const template = before.snapshots.find((one) => one.status === 'READY')?.name ?? 'base';
  const extra = before.instances.find((one) => one.uuid !== main.uuid);
  const old = before.snapshots.find((one) => one.name !== template);
  const jobs: (() => Promise<void>)[] = [
    ...Array.from({ length: 4 }, () => () => addGenerated(round)),
    ...Array.from({ length: 4 }, () => () => addSupplied(round)),
    () => createOne(round, 'base'),
    () => createOne(round, template),
    () => takeSnapshot(round, `round-${number}`),
    ...(extra === undefined ? [] : [() => deleteOne(round, extra.uuid)]),
    ...(old === undefined ? [] : [() => dropSnapshot(old.id)]),
  ];
  const begin = jobs.map(async (job) => {
    await sleep(random.below(LATEST_KILL_MS / 2));
    await job();
  });
  return Promise.all(begin);
}

async function assertPromisesKept(round: Round, state: Settled): Promise<void> {
  const status = new Map(state.instances.map((one) => [one.uuid, one.status]));
  for (const uuid of round.created) assert.equal(status.get(uuid), 'RUNNING', 'created');
  for (const uuid of round.deleted) assert.equal(status.get(uuid), undefined, 'deleted');
  for (const name of round.snapshots) {
    assert.ok(
      state.snapshots.some((one) => one.name === name),
      `snapshot ${name} is listed`,
    );
  }
  assert.equal(status.get(main.uuid), 'RUNNING');
  await assertKeysKept(house, main, round.keys);
  counts.keysKept += round.keys.length;
}

/** Lines that nobody was told of: fewer than the generated pairs that were under way, and counted. */
async function assertNoStrayKeys(round: Round, before: readonly string[]): Promise<void> {
  if (house.skipLogins !== false) return;
  const known = new Set([...before, ...round.unansweredSupplied]);
  const told = round.keys.map((key) => key.publicKey.split(' ')[1] ?? '');
  const lines = await keyFileLines(main.login);
  for (const line of before) assert.ok(lines.includes(line), `this line is lost: ${line}`);
  const strays = lines.filter(
    (line) => !known.has(line) && !told.some((key) => line.includes(key)),
  );
  assert.ok(strays.length <= round.unansweredGenerated, strays.join('\n'));
  counts.unansweredKeysLeft += strays.length;
}

async function tidy(state: Settled): Promise<void> {
  const extras = state.instances.filter((one) => one.uuid !== main.uuid).slice(1);
  for (const one of extras) await api.deleteInstance(one.uuid);
  for (const one of state.snapshots.slice(2)) await api.deleteSnapshot(one.id);
  for (const one of extras) await api.gone(one.uuid);
}

async function oneRound(number: number): Promise<void> {
  const linesBefore = house.skipLogins === false ? await keyFileLines(main.login) : [];
  const before = await settled(house);
  const round = new Round();
  const killAfterMs = random.below(LATEST_KILL_MS);
  const working = work(round, number, before);
  await sleep(killAfterMs);
  await service.end('SIGKILL');
  await working;
  await service.start();
  counts.rounds += 1;
  const state = await settled(house);
  await assertPromisesKept(round, state);
  await assertNoStrayKeys(round, linesBefore);
  assertNoPrivateKeys(house);
  await tidy(state);
}

for (let number = 0; number < ROUNDS; number += 1) {
  test(`round ${number} of random kills (seed ${seed})`, () => oneRound(number));
}

test('after all rounds the service is sound, and nothing is left over', async () => {
  for (const one of (await api.instances()).values()) await api.deleteInstance(one.uuid);
  for (const one of await api.snapshots()) await api.deleteSnapshot(one.id);
  await api.gone(main.uuid);
  const state = await settled(house);
  assert.deepEqual(state, { instances: [], snapshots: [] });
  console.log(`random kills: ${JSON.stringify(counts)}`);
});
