/** Whoever mends the settings learns at once of all that is wrong, in the catalog too. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { loadSettings } from '../../src/catalog-loading.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-settings-'));
after(() => rmSync(folder, { recursive: true }));
const catalog = join(folder, 'catalog.yaml');
writeFileSync(catalog, 'prices: none\n');

test('bad settings and a bad catalog are one list', () => {
  assert.throws(
    () => loadSettings({ BERTH_PORT: 'x', BERTH_ENGINE: 'y', BERTH_CATALOG: catalog }),
    (error: Error) =>
      ['BERTH_PORT', 'BERTH_ENGINE', catalog].every((word) => error.message.includes(word)),
  );
});

test('a good catalog, or none, adds nothing', () => {
  assert.throws(() => loadSettings({ BERTH_PORT: 'x' }), {
    name: 'ConfigError',
    message: /^[^\n]+\n {2}- BERTH_PORT [^\n]+$/,
  });
  assert.equal(loadSettings({ BERTH_PORT: '1' }).port, 1);
});
