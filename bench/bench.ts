/** `npm run bench`: what README's numbers come from. Ratios in one run, never bare times: machines are noisy. */
import { benchAddKey } from './add-key.ts';
import { benchCrowd, benchIncusAddKey } from './incus-add-key.ts';
import { benchLives } from './incus-lives.ts';
import { openIncusRig } from './incus-rig.ts';
import { benchList } from './list.ts';
import type { Measurement } from './measurement.ts';
import { openRig } from './rig.ts';

const say = (text: string) => process.stdout.write(`${text}\n`);
const results: Measurement[] = [];
// `npm run bench -- incus` or `-- sandbox`: one of the two.
const [only] = process.argv.slice(2);
if (only !== 'incus') await benchSandbox();
if (only !== 'sandbox') await benchIncus();

async function benchSandbox(): Promise<void> {
  const rig = await openRig();
  try {
    for (const count of [10, 1000]) results.push(await benchList(rig, count));
    results.push(...(await benchAddKey(rig)));
  } finally {
    await rig.close();
  }
}

async function benchIncus(): Promise<void> {
  const rig = await openIncusRig(say);
  if (typeof rig === 'string') {
    say(`SKIPPING ALL OF INCUS: ${rig}.`);
    return;
  }
  try {
    results.push(...(await benchIncusAddKey(rig)));
    results.push(...(await benchLives(rig)));
    results.push(await benchCrowd(rig));
  } finally {
    await rig.close();
  }
}

process.stdout.write('\n');
for (const { name, detail, ratio, goal } of results) {
  const verdict = goal === undefined ? 'for comparison' : goal.holds(ratio) ? 'met' : 'MISSED';
  const wanted = goal === undefined ? '' : `goal ${goal.text}, `;
  process.stdout.write(
    `${name.padEnd(46)} ${ratio.toFixed(2).padStart(7)}   ${wanted}${verdict}   (${detail})\n`,
  );
}
process.exitCode = results.every(({ ratio, goal }) => goal?.holds(ratio) ?? true) ? 0 : 1;
