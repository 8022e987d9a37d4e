/** `npm run bench`: what README's numbers come from. Ratios in one run, never bare times: machines are noisy. */
import { benchAddKey } from './add-key.ts';
import { benchList } from './list.ts';
import type { Measurement } from './measurement.ts';
import { openRig } from './rig.ts';

const rig = await openRig();
const results: Measurement[] = [];
try {
  for (const count of [10, 1000]) results.push(await benchList(rig, count));
  results.push(...(await benchAddKey(rig)));
} finally {
  await rig.close();
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
