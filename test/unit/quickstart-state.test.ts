/** What the quickstart leaves for a shell to read. */

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { incusEnvironment } from '../../scripts/quickstart-incus.ts';
import { readSavedState, writeSavedState } from '../../scripts/quickstart-state.ts';
import { loadConfig } from '../../src/config.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-quickstart-state-'));
after(() => rmSync(folder, { recursive: true }));
const state = { url: 'http://127.0.0.1:8080', token: 'secret' };
const file = () => readFileSync(join(folder, 'quickstart.env'), 'utf8');

test('the engine is named where it is not the one that goes without saying', () => {
  writeSavedState(folder, { ...state, engine: 'incus' });
  assert.match(file(), /^BERTH_ENGINE=incus$/m);
  assert.equal(readSavedState(folder)?.token, 'secret');
  writeSavedState(folder, state);
  assert.doesNotMatch(file(), /BERTH_ENGINE/);
});

test('a trial on Incus promises memory and disk twice', () => {
  const { overcommit } = loadConfig(incusEnvironment({}));
  assert.deepEqual(overcommit, { cpu: 4, memory: 2, disk: 2 });
});
