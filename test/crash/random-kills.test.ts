/** Kills the service at random moments of much concurrent work, again and again, and looks for anything lost or left. */

import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { engineUnderTest } from '../support/incus.ts';
import { Random, seedFrom } from '../support/random.ts';
import { sleep } from '../support/waiting.ts';
import { type Death, Rounds } from './rounds.ts';

/** What comes after a kill takes longer where a guest has to boot. */
const usualRounds = { sandbox: 12, incus: 4 };
const ROUNDS = Number(process.env.BERTH_CRASH_ROUNDS ?? usualRounds[engineUnderTest]);
/** Late enough for some answers to have come. */
const LATEST_KILL_MS = { sandbox: 500, incus: 1_500 }[engineUnderTest];
const SPREAD_MS = 250;
const seed = seedFrom('BERTH_TEST_SEED');
const random = new Random(seed);
console.log(`random kills: BERTH_TEST_SEED=${seed}, ${ROUNDS} rounds`);

const house = await openHouse();
after(() => house.dispose());
const rounds = new Rounds(house, await house.machine(), random, SPREAD_MS);

function death(): Death {
  const killAfterMs = random.below(LATEST_KILL_MS);
  return {
    refusals: [],
    losesAnswers: true,
    happen: async () => {
      await sleep(killAfterMs);
      await house.service.end('SIGKILL');
    },
    recover: () => house.service.start(),
  };
}

for (let number = 0; number < ROUNDS; number += 1) {
  test(`round ${number} of random kills (seed ${seed})`, () => rounds.one(number, death()));
}

test('after all rounds the service is sound, and nothing is left over', async () => {
  await rounds.empty();
  console.log(`random kills: ${JSON.stringify(rounds.counts)}`);
});
