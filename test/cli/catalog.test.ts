import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { exampleFile, exampleText } from '../support/catalogs.ts';
import { berth, fail, makeHome, succeed } from './berth.ts';
import { type Service, startService } from './service.ts';

let home: Awaited<ReturnType<typeof makeHome>>;
let service: Service;
let bad: string;

before(async () => {
  home = await makeHome();
  bad = join(home.home, 'bad.yaml');
  const text = exampleText
    .replace('vram_gb: 80', 'vram_gb: lots')
    .replace('attach: none', 'attach: 7');
  await writeFile(bad, text);
  service = await startService({ ...home.env, BERTH_CATALOG: exampleFile });
});
after(async () => {
  await service?.stop();
  await home.remove();
});

const lineOf = (text: string): number =>
  exampleText.slice(0, exampleText.indexOf(text)).split('\n').length;

test('the example is good', async () => {
  const { stdout } = await succeed(home.env, ['admin', 'catalog', 'check', exampleFile]);
  assert.equal(stdout, 'The catalog is good. Specs: 5. Templates: 2.\n');
  const json = await succeed(home.env, ['admin', 'catalog', 'check', exampleFile, '--json']);
  assert.deepEqual(JSON.parse(json.stdout), { valid: true, problems: [] });
});

test('every problem of a bad file has its line, and the exit code is 1', async () => {
  const { stdout, stderr } = await fail(home.env, ['admin', 'catalog', 'check', bad], 1);
  const lines = stderr.split('\n');
  assert.equal(stdout, '');
  assert.match(
    lines[0] ?? '',
    new RegExp(`^${bad}:${lineOf('attach: none')}: gpu_types\\[0\\]\\.attach: `),
  );
  assert.match(
    lines[1] ?? '',
    new RegExp(`^${bad}:${lineOf('vram_gb: 80')}: gpu_types\\[1\\]\\.vram_gb: .*"lots"`),
  );
  assert.equal(lines[2], `berth: The catalog ${bad} has 2 problems.`);
});

test('the problems as JSON', async () => {
  const { stdout } = await fail(home.env, ['admin', 'catalog', 'check', bad, '--json'], 1);
  const answer = JSON.parse(stdout) as { valid: boolean; problems: Record<string, unknown>[] };
  assert.equal(answer.valid, false);
  const places = answer.problems.map(({ line, path }) => [line, path]);
  assert.deepEqual(places, [
    [lineOf('attach: none'), 'gpu_types[0].attach'],
    [lineOf('vram_gb: 80'), 'gpu_types[1].vram_gb'],
  ]);
});

test('what is no file to read is named, and not waited for', async () => {
  const pipe = join(home.home, 'pipe');
  execFileSync('mkfifo', [pipe]);
  const check = (path: string, message: RegExp) =>
    fail(home.env, ['admin', 'catalog', 'check', path], 2, message);
  await check(join(home.home, 'none.yaml'), /none\.yaml" cannot be read: no such file/);
  await check(home.home, /cannot be read: it is not a file/);
  await check(pipe, /cannot be read: it is not a file/);
});

test('the service does not start with a bad catalog, and says all that is wrong', async () => {
  const data = join(home.home, 'data');
  const args = ['serve', '--port', '0', '--data', data];
  for (const run of [
    await berth({ ...home.env, BERTH_CATALOG: bad }, args),
    await berth(home.env, [...args, '--catalog', bad]),
  ]) {
    assert.equal(run.code, 2, run.stderr);
    assert.ok(run.stderr.includes(`${bad}:${lineOf('attach: none')}: gpu_types[0].attach: `));
    assert.ok(run.stderr.includes(`${bad}:${lineOf('vram_gb: 80')}: gpu_types[1].vram_gb: `));
  }
  const missing = { ...home.env, BERTH_CATALOG: join(home.home, 'none.yaml') };
  await fail(missing, args, 2, /none\.yaml" cannot be read/);
});

test('specs and templates are shown without a login', async () => {
  const env = { ...home.env, BERTH_URL: service.url };
  const { stdout } = await succeed(env, ['specs']);
  assert.match(stdout, /^SPEC +GPU +VRAM/);
  assert.match(stdout, /a100_x2_production +NVIDIA A100 +80 GB +16, 32, 64 .* 3\.58 +available/);
  assert.match(stdout, /cpu_x1_prototyping +CPU only +- +1 to 16 /);
  const specs = await succeed(env, ['specs', '--json']);
  assert.equal(Object.keys((JSON.parse(specs.stdout) as { specs: object }).specs).length, 5);
  assert.match((await succeed(env, ['templates'])).stdout, /base +Base +yes +The system/);
  const templates = await succeed(env, ['templates', '--json']);
  assert.deepEqual(Object.keys(JSON.parse(templates.stdout) as object), ['base', 'notebook']);
});
