/** What `bin/berth` does before the program begins: where it keeps compiled code. */

import assert from 'node:assert/strict';
import { chownSync, existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { makeHome, succeed } from './berth.ts';

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
