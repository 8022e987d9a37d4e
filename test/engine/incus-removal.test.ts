/** Nothing of the Incus of a test run stays on the host, however the run ends. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { skipIncus } from '../support/incus.ts';
import { abandonedFolders, removeIncus } from '../support/incus-removal.ts';
import { allProcesses } from '../support/processes.ts';
import { runWell } from '../support/run.ts';
import { eventuallyPasses } from '../support/waiting.ts';

const HOLDER = join(import.meta.dirname, 'incus-holder.ts');
const REMOVAL_MS = 30_000;

interface Held {
  readonly child: ChildProcess;
  readonly folder: string;
  readonly network: string;
}

async function hold(): Promise<Held> {
  const child = spawn(process.execPath, [HOLDER], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`The holder ended with ${code}.`);
  });
  const [chunk] = (await Promise.race([once(child.stdout, 'data'), ended])) as [Buffer];
  ended.catch(() => undefined);
  const { url, network } = JSON.parse(chunk.toString()) as { url: string; network: string };
  return { child, folder: dirname(dirname(url.slice('unix:'.length))), network };
}

/** Every line in which the host still speaks of it. */
async function traces({ folder, network }: Held): Promise<string[]> {
  const groups = readdirSync('/sys/fs/cgroup', { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? readdirSync(join('/sys/fs/cgroup', entry.name)) : [entry.name],
  );
  const texts = [
    ...readdirSync(dirname(folder)).map((name) => join(dirname(folder), name)),
    readFileSync('/proc/self/mountinfo', 'utf8'),
    await runWell('losetup', ['--list']),
    await runWell('ip', ['link']),
    await runWell('nft', ['list', 'ruleset']),
    ...allProcesses().map(({ command }) => command),
    ...groups,
  ];
  const isTrace = (line: string) => line.includes(folder) || line.includes(network);
  return texts.flatMap((text) => text.split('\n')).filter(isTrace);
}

/** The host's ends of the cables of guests. */
const portsOf = ({ network }: Held) => readdirSync(`/sys/class/net/${network}/brif`);

const timeout = 180_000;

test('a run that is killed leaves nothing', { skip: skipIncus, timeout }, async () => {
  const held = await hold();
  const ports = portsOf(held);
  assert.equal(ports.length, 1);
  assert.ok((await traces(held)).length > 15, 'what is there is seen');
  held.child.kill('SIGKILL');
  await eventuallyPasses(REMOVAL_MS, async () => assert.deepEqual(await traces(held), []));
  for (const port of ports) assert.ok(!existsSync(`/sys/class/net/${port}`), port);
});

test('what a run left that was killed with its remover goes at the next start', {
  skip: skipIncus,
  timeout,
}, async () => {
  const held = await hold();
  const isRemover = ({ command }: { command: string }) =>
    command.includes('incus-removal.ts') && command.includes(held.folder);
  const remover = allProcesses().find(isRemover);
  assert.ok(remover);
  process.kill(remover.pid, 'SIGKILL');
  held.child.kill('SIGKILL');
  await once(held.child, 'exit');
  assert.ok((await traces(held)).length > 15);
  assert.ok(abandonedFolders().includes(held.folder));
  await removeIncus(held.folder);
  assert.deepEqual(await traces(held), []);
});
