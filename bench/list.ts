import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import autocannon from 'autocannon';
import { atLeast, type Measurement, median } from './measurement.ts';
import type { Rig } from './rig.ts';

const rounds = 13;
/** The compiler takes some hundred thousand requests to be done with the longer way of the two. */
const warmUpRounds = 9;
const secondsARound = 1;
const connections = 10;

/** `GET /v1/snapshots/list` against a bare server that sends the same bytes: requests per second, by turns. */
export async function benchList(rig: Rig, count: number): Promise<Measurement> {
  const headers = { authorization: `Bearer ${await rig.organization(count)}` };
  const ours = `${rig.url}/v1/snapshots/list`;
  const file = join(rig.dataDir, `list-${count}.json`);
  const answer = await fetch(ours, { headers });
  writeFileSync(file, Buffer.from(await answer.arrayBuffer()));
  const bare = await rig.start('bare-server.ts', [file, JSON.stringify(sentHeaders(answer))]);
  const ratios: number[] = [];
  const rates: number[] = [];
  for (let round = 1 - warmUpRounds; round <= rounds; round++) {
    // By turns, and each first as often as the other: a host that slows down slows both down.
    const order = round % 2 === 0 ? [ours, bare.word] : [bare.word, ours];
    const measured = new Map<string, number>();
    for (const url of order) measured.set(url, await rate(url, headers));
    const [own = 0, yardstick = 0] = [measured.get(ours), measured.get(bare.word)];
    if (round <= 0) continue;
    ratios.push(own / yardstick);
    rates.push(own);
  }
  bare.stop();
  const detail = `${Math.round(median(rates))} requests/s`;
  const goal = atLeast(count <= 10 ? 0.8 : 0.9);
  return { name: `list ${count} snapshots / bare node:http`, ratio: median(ratios), detail, goal };
}

/** What the service writes itself: the rest comes from node:http in both. */
function sentHeaders(answer: Response): Record<string, string> {
  const names = ['content-type', 'content-length', 'etag', 'x-request-id'];
  return Object.fromEntries(names.map((name) => [name, answer.headers.get(name) ?? '']));
}

async function rate(url: string, headers: Record<string, string>): Promise<number> {
  const result = await autocannon({ url, headers, connections, duration: secondsARound });
  if (result.errors > 0 || result.non2xx > 0) throw new Error(`${url} did not answer well`);
  return result.requests.average;
}
