/** `berth admin image` as an operator types it. What images are is tested in test/engine/incus-images.test.ts. */

import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ownArchitecture } from '../../src/engines/incus/image-recipe.ts';
import { skipIncus } from '../support/incus.ts';
import { runWell } from '../support/run.ts';
import { berth, type Environment, makeHome, succeed } from './berth.ts';

let home: Awaited<ReturnType<typeof makeHome>>;
let away: Environment;

before(async () => {
  home = await makeHome();
  const url = `unix:${home.home}/nothing.socket`;
  away = { ...home.env, BERTH_INCUS_URL: url, BERTH_DATA: join(home.home, 'data') };
});
after(() => home.remove());

const image = (env: Environment, ...words: string[]) => berth(env, ['admin', 'image', ...words]);

test('without Incus each of them says so at once', async () => {
  for (const words of [['list'], ['build'], ['remove', 'base'], ['import', 'a', '/etc/passwd']]) {
    const result = await image(away, ...words);
    assert.equal(result.code, 1, result.stderr);
    assert.match(result.stderr, /Incus cannot be reached/);
    assert.doesNotMatch(result.stderr, /\n +at /);
  }
});

test('an import of nothing, of too much and of what is not there', async () => {
  const cases: [string[], number, RegExp][] = [
    [['a'], 2, /one or two files/],
    [['a', 'b', 'c', 'd'], 2, /one or two files/],
    [['a', 'b', '--from', 'images:debian/12'], 2, /one or two files/],
    [['a', 'b', '--vm'], 2, /--vm goes with --from/],
    [['a', '/nonexistent.tar'], 1, /There is no file \/nonexistent\.tar\./],
    [['a', '--from', 'nowhere'], 1, /images:debian\/12/],
    [['A b', '/etc/passwd'], 1, /small letters/],
  ];
  for (const [words, code, message] of cases) {
    const result = await image(away, 'import', ...words);
    assert.equal(result.code, code, result.stderr);
    assert.match(result.stderr, message);
  }
});

const onIncus = (): Environment => ({
  ...home.env,
  BERTH_INCUS_URL: process.env.BERTH_TEST_INCUS_URL ?? '',
  BERTH_INCUS_POOL: process.env.BERTH_TEST_INCUS_POOL ?? '',
});

test('an import ends with how to use the template', { skip: skipIncus }, async () => {
  const folder = join(home.home, 'image');
  await mkdir(join(folder, 'rootfs'), { recursive: true });
  const architecture = ownArchitecture() === 'amd64' ? 'x86_64' : 'aarch64';
  const metadata = { architecture, creation_date: 1, properties: { description: folder } };
  await writeFile(join(folder, 'metadata.yaml'), JSON.stringify(metadata));
  const tar = join(home.home, 'image.tar');
  await runWell('tar', ['-cf', tar, '-C', folder, 'metadata.yaml', 'rootfs']);
  const name = `cli-${process.pid}`;
  const env = onIncus();
  const { stdout } = await succeed(env, ['admin', 'image', 'import', name, tar, '--unchecked']);
  await succeed(env, ['admin', 'image', 'remove', name]);
  assert.match(stdout, new RegExp(`list a template with "source: ${name}" in the catalog`));
});

test('the templates are listed for people and for programs', { skip: skipIncus }, async () => {
  const env = onIncus();
  const listed = await succeed(env, ['admin', 'image', 'list', '--json']);
  const found = JSON.parse(listed.stdout) as {
    template: string;
    type: string;
    fingerprint: string;
  }[];
  const base = found.find(({ template }) => template === 'base');
  assert.equal(base?.type, 'container');
  const shown = await succeed(env, ['admin', 'image', 'list']);
  assert.match(
    shown.stdout,
    new RegExp(`^base +container +\\d+ MB .* ${base.fingerprint.slice(0, 12)} `, 'm'),
  );
  const missing = await image(env, 'remove', 'nothing-of-that-name');
  assert.equal(missing.code, 4, missing.stderr);
});
