import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import autocannon from 'autocannon';
import { atLeast, type Measurement, median } from './measurement.ts';
import type { Rig } from './rig.ts';

const rounds = 9;
/** The compiler takes some hundred thousand requests to be done with the longer way of the two. */
const warmUpRounds = 5;
const secondsARound = 1;
const connections = 10;

/** `GET /v1/snapshots/list` against a bare server that sends the same bytes: requests per second, by turns. */
export async function benchList(rig: Rig, count: number): Promise<Measurement> {
  const headers = { authorization: `Bearer ${await rig.organization(count)}` };
  const ours = `${rig.url}/v1/snapshots/list`;
  const file = join(rig.dataDir, `list-${count}.json`);
  writeFileSync(file, Buffer.from(await (await fetch(ours, { headers })).arrayBuffer()));
  const bare = await rig.start('bare-server.ts', [file]);
  const ratios: number[] = [];
  const rates: number[] = [];
  for (let round = 1 - warmUpRounds; round <= rounds; round++) {
    const [own, yardstick] = [await rate(ours, headers), await rate(bare.word, headers)];
    if (round <= 0) continue;
    ratios.push(own / yardstick);
    rates.push(own);
  }
  bare.stop();
  const detail = `${Math.round(median(rates))} requests/s`;
  const goal = atLeast(count <= 10 ? 0.8 : 0.9);
  return { name: `list ${count} snapshots / bare node:http`, ratio: median(ratios), detail, goal };
}

async function rate(url: string, headers: Record<string, string>): Promise<number> {
  const result = await autocannon({ url, headers, connections, duration: secondsARound });
  if (result.errors > 0 || result.non2xx > 0) throw new Error(`${url} did not answer well`);
  return result.requests.average;
}
