/** openapi.json at the root is what the service answers, and Redocly and Spectral find nothing in it. */

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { howToRegenerate, openApiFile, openApiText } from '../../scripts/openapi.ts';
import type { Problem } from '../openapi-lint/lint.ts';
import { runWell } from '../support/run.ts';

const LINTERS = join(import.meta.dirname, '..', 'openapi-lint');

test('openapi.json has not drifted from the service', async () => {
  const [kept, now] = [readFileSync(openApiFile, 'utf8'), await openApiText()];
  if (kept === now) return;
  assert.deepEqual(JSON.parse(kept), JSON.parse(now), `openapi.json is old. ${howToRegenerate}`);
  assert.fail(`openapi.json is formatted otherwise. ${howToRegenerate}`);
});

/** The linters are many, and nobody but this test wants them: it installs them on first use, beside their lock file. */
async function installLinters(): Promise<void> {
  const stamp = join(LINTERS, 'node_modules', '.installed-from');
  const wanted = readFileSync(join(LINTERS, 'package-lock.json'), 'utf8');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return;
  console.log('Installing the linters of openapi.json (once; half a minute) ...');
  await runWell('npm', ['ci', '--prefix', LINTERS, '--loglevel=error'], { timeoutMs: 300_000 });
  writeFileSync(stamp, wanted);
}

test('openapi.json is clean under the recommended rules of Redocly and Spectral', async () => {
  await installLinters();
  const words = [join(LINTERS, 'lint.ts'), openApiFile];
  const said = await runWell(process.execPath, words, { timeoutMs: 120_000 });
  assert.deepEqual(JSON.parse(said) as Problem[], []);
});

test('the linters look: a document without a licence and with a wrong example is refused', async (context) => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-lint-'));
  context.after(() => rmSync(folder, { recursive: true }));
  const document = JSON.parse(readFileSync(openApiFile, 'utf8'));
  delete document.info.license;
  document.paths['/v1/snapshots/list'].get.responses['200'].content['application/json'].example = 7;
  const file = join(folder, 'openapi.json');
  writeFileSync(file, JSON.stringify(document));
  const words = [join(LINTERS, 'lint.ts'), file];
  const found = JSON.parse(await runWell(process.execPath, words, { timeoutMs: 120_000 }));
  const rules = (found as Problem[]).map((one) => `${one.linter} ${one.rule}`);
  assert.ok(rules.includes('redocly info-license'), `${rules}`);
  assert.ok(rules.includes('spectral oas3-valid-media-example'), `${rules}`);
});
