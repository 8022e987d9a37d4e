/** A data folder belongs to one engine. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { loadConfig } from '../../src/config.ts';
import { engineOfData, noteEngine, requireEngine } from '../../src/data-folder.ts';
import { startService } from '../../src/main.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-data-folder-'));
after(() => rmSync(folder, { recursive: true }));

test('a folder takes the engine that it is first used with, and no other after that', () => {
  requireEngine(folder, 'incus');
  noteEngine(folder, 'incus');
  requireEngine(folder, 'incus');
  assert.throws(() => requireEngine(folder, 'sandbox'), /is of the engine incus.*--engine incus/);
});

test('the service refuses the folder of another engine, and a note cut short counts for nothing', async () => {
  const path = join(folder, 'engine');
  const config = loadConfig({ BERTH_DATA: folder, BERTH_PORT: '0', BERTH_LOG_LEVEL: 'silent' });
  const starting = startService(config);
  starting.then(
    (service) => service.stop(),
    () => undefined,
  );
  await assert.rejects(starting, /is of the engine incus, not sandbox/);
  writeFileSync(path, '');
  assert.equal(engineOfData(folder), undefined);
  noteEngine(folder, 'sandbox');
  assert.equal(engineOfData(folder), 'sandbox');
});
