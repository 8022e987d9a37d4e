/** Kills incusd in the middle of everything, again and again, and looks for anything lost or left. */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { engineUnderTest, skipIncus } from '../support/incus.ts';
import { openPrivateIncus, type PrivateIncus } from '../support/incus-host.ts';
import { Random, seedFrom } from '../support/random.ts';
import { loginProblem } from '../support/ssh.ts';
import { eventually, sleep } from '../support/waiting.ts';
import { settled } from './aftermath.ts';
import { DaemonLane, DURING } from './daemon-lane.ts';
import { guestPid, placeOf } from './incus-objects.ts';
import { type Death, Rounds } from './rounds.ts';

const LANES = 3;
/** So often each action is hit, at moments of its own, and then all of them at once. */
const TURNS = Number(process.env.BERTH_CRASH_ROUNDS ?? '1');
const UNDER_WAY_MS = 2_000;
const LATEST_KILL_MS = 120;
const LONGEST_DOWN_MS = 3_000;
const ROUND_SPREAD_MS = 400;
/** What an engine that is away may be answered with. */
const AWAY = [502, 503, 504];

const seed = seedFrom('BERTH_TEST_SEED');
const random = new Random(seed);

const skip = skipIncus || (engineUnderTest !== 'incus' && 'it is about Incus');

describe(`incusd killed in the middle (BERTH_TEST_SEED=${seed})`, { skip, concurrency: 1 }, () => {
  const stack = new AsyncDisposableStack();
  let incus: PrivateIncus;
  let lanes: DaemonLane[];
  /** A lane in which nothing is asked for. */
  let bystander: DaemonLane;
  let bystanderPid: number;

  before(async () => {
    // A daemon of its own: others need theirs.
    incus = await openPrivateIncus(() => {}, { door: true });
    stack.defer(() => incus.remove());
    const open = async (): Promise<DaemonLane> => {
      const lane = await DaemonLane.open(incus.server);
      stack.defer(() => lane.house.dispose());
      return lane;
    };
    bystander = await open();
    bystanderPid = await guestPid(bystander.house, bystander.main.uuid);
    lanes = await Promise.all(Array.from({ length: LANES }, open));
    stack.defer(() => incus.restart());
  });
  after(() => stack.disposeAsync());

  async function killAfter(ms: number): Promise<void> {
    await sleep(ms);
    await incus.kill();
    await sleep(random.below(LONGEST_DOWN_MS));
    await incus.restart();
  }

  /** Sooner or later after Incus has begun with something. */
  async function killInTheMiddle(): Promise<void> {
    const { client } = placeOf(bystander.house);
    const query = { 'all-projects': 'true' };
    const isBusy = async () => {
      const found = await client.get<Record<string, unknown>>('/1.0/operations', { query });
      return 'running' in found ? true : undefined;
    };
    await eventually('something to do', UNDER_WAY_MS, isBusy, 1).catch(() => undefined);
    await killAfter(random.below(LATEST_KILL_MS));
  }

  async function assertUntouched(): Promise<void> {
    const { house, main } = bystander;
    assert.equal(await guestPid(house, main.uuid), bystanderPid, 'it runs on');
    assert.equal(await loginProblem(main.login), undefined);
    const { instances } = await settled(house);
    assert.deepEqual(
      instances.map(({ status }) => status),
      ['RUNNING'],
    );
  }

  for (let first = 0; first < DURING.length * TURNS; first += LANES) {
    const actions = Array.from(
      { length: LANES },
      (_, lane) => DURING[(first + lane) % DURING.length],
    );
    const names = actions.map((action) => action?.name).join(', ');
    test(`during: ${names}`, async () => {
      const pairs = lanes.flatMap((lane, index) => {
        const action = actions[index];
        return action ? [{ lane, action }] : [];
      });
      for (const { lane, action } of pairs) await lane.prepare(action);
      const asked = Promise.all(pairs.map(({ lane, action }) => lane.ask(action, AWAY)));
      // Only to be looked at when Incus is back.
      asked.catch(() => undefined);
      await killInTheMiddle();
      await asked;
      await Promise.all(pairs.map(({ lane, action }) => lane.check(action)));
      await assertUntouched();
    });
  }

  test('at random moments of much concurrent work', async () => {
    const [lane] = lanes;
    assert.ok(lane);
    const { house, main } = lane;
    const death = (): Death => ({
      refusals: AWAY,
      losesAnswers: false,
      happen: () => killAfter(random.below(2 * ROUND_SPREAD_MS)),
      recover: async () => {},
    });
    const rounds = new Rounds(house, main, random, ROUND_SPREAD_MS);
    for (let number = 0; number < TURNS; number += 1) await rounds.one(number, death());
    console.log(`incusd killed: ${JSON.stringify(rounds.counts)}`);
    await assertUntouched();
  });
});
