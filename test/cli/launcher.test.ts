/** What `bin/berth` and `scripts/run.sh` do before the program begins: compiled code, core dumps. */

import assert from 'node:assert/strict';
import { chownSync, existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { launcher, makeHome, run, succeed } from './berth.ts';

const nobody = 65_534;
let home: Awaited<ReturnType<typeof makeHome>>;
before(async () => {
  home = await makeHome();
});
after(() => home.remove());

const cacheOf = (folder: string) => join(folder, '.cache', 'berth', 'node');

test('compiled code is kept in the home of the one who runs it', async () => {
  const { NODE_COMPILE_CACHE: _, ...env } = home.env;
  await succeed(env, ['--version']);
  assert.notDeepEqual(readdirSync(cacheOf(home.home)), []);
});

test("nothing is read from or written to another user's home, as under sudo", {
  skip: process.getuid?.() !== 0 && 'only root can make a home of another user',
}, async () => {
  const other = await makeHome();
  after(() => other.remove());
  chownSync(other.home, nobody, nobody);
  const { NODE_COMPILE_CACHE: _, ...env } = other.env;
  await succeed(env, ['--version']);
  assert.ok(!existsSync(cacheOf(other.home)));
});

test('it runs without a home', async () => {
  const { NODE_COMPILE_CACHE: _, HOME: __, ...env } = home.env;
  await succeed(env, ['--version']);
});

test('npm scripts ask for no core, and for nothing in one', async () => {
  const script = join(dirname(launcher), '..', 'scripts', 'run.sh');
  const read = (name: string) => `fs.readFileSync("/proc/self/${name}", "utf8")`;
  const look = `${read('limits')} + ${read('coredump_filter')}`;
  const keepingCores =
    'ulimit -S -c unlimited; echo 0x33 > /proc/self/coredump_filter; exec "$0" "$@"';
  const words = ['-c', keepingCores, 'sh', script, '--print', look];
  const { stdout } = await run('/bin/sh', words, { env: home.env });
  assert.match(stdout, /^Max core file size +0 /m);
  assert.match(stdout, /^0{8}$/m);
});
