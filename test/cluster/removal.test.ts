/** Nothing of a cluster stays on the machine when its test is killed. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { allProcesses } from '../support/processes.ts';
import { runWell } from '../support/run.ts';
import { eventuallyPasses } from '../support/waiting.ts';
import { reasonToSkip } from './house.ts';

const HOLDER = join(import.meta.dirname, 'holder.ts');
const REMOVAL_MS = 30_000;

interface Held {
  readonly folder: string;
  readonly stem: string;
}

function environmentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8');
  } catch {
    return '';
  }
}

/** Everything by which the machine still speaks of it. */
async function traces({ folder, stem }: Held): Promise<string[]> {
  const names = [...readdirSync('/sys/class/net'), ...readdirSync('/run/netns')];
  const loops = (await runWell('losetup', ['--list'])).split('\n');
  const daemons = allProcesses().filter(({ pid }) => environmentOf(pid).includes(`=${folder}/`));
  return [
    ...names.filter((name) => name.startsWith(stem)),
    ...loops.filter((line) => line.includes(folder)),
    ...daemons.map(({ command }) => command),
    ...(existsSync(folder) ? [folder] : []),
  ];
}

test('a run that is killed leaves no cluster', {
  skip: await reasonToSkip(),
  timeout: 120_000,
}, async () => {
  const holder = spawn(process.execPath, [HOLDER], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(holder, 'exit').then(([code]) => {
    throw new Error(`The holder ended with ${code}.`);
  });
  const [chunk] = (await Promise.race([once(holder.stdout, 'data'), ended])) as [Buffer];
  ended.catch(() => undefined);
  const held = JSON.parse(chunk.toString()) as Held;
  const there = await traces(held);
  for (const one of [`${held.stem}br`, `${held.stem}m3`, `${held.stem}v1`])
    assert.ok(there.includes(one), `${one} is seen among ${there.join(', ')}`);
  assert.equal(there.filter((one) => one.startsWith('incusd ')).length, 3, there.join('\n'));
  holder.kill('SIGKILL');
  await eventuallyPasses(REMOVAL_MS, async () => assert.deepEqual(await traces(held), []));
});
