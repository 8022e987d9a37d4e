/** Somebody edits `authorized_keys` by hand while the service replaces it: nothing of theirs is lost. */

import assert from 'node:assert/strict';
import { appendFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { addKeyTo, removeKeyFrom } from '../../src/engines/sandbox/authorized-keys-file.ts';
import { numberedKey, rejectsWith } from './engine-contract.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

const [KEY, OTHER] = [{ publicKey: numberedKey(1) }, numberedKey(2)];
const OWNER = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
const NOW = new Date();
let disk: string;
let file: string;

beforeEach(() => {
  disk = makeTemporaryFolder('berth-key-file-');
  const folder = join(disk, 'home', 'ubuntu', '.ssh');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  file = join(folder, 'authorized_keys');
});
afterEach(() => rmSync(disk, { recursive: true }));

const text = () => readFileSync(file, 'utf8');
/** It has read the file and waits for its new one to be flushed when this returns. */
const add = () => addKeyTo(disk, OWNER, KEY, NOW);

test('a line that is added while the new file is flushed stays', async () => {
  writeFileSync(file, '# first\n');
  const adding = add();
  appendFileSync(file, '# by hand\n');
  assert.equal((await adding).outcome, 'added');
  assert.equal(text(), `# first\n# by hand\n${KEY.publicKey}\n`);
});

test('a file that is made meanwhile stays, and one that is put in its place', async () => {
  const adding = add();
  writeFileSync(file, '# made\n');
  assert.equal((await adding).outcome, 'added');
  assert.equal(text(), `# made\n${KEY.publicKey}\n`);
  const removing = removeKeyFrom(disk, OWNER, { kind: 'key', ...KEY });
  rmSync(file);
  writeFileSync(file, `${OTHER}\n${KEY.publicKey}\n`);
  assert.equal(await removing, 1);
  assert.equal(text(), `${OTHER}\n`);
});

test('the very key, added by hand meanwhile, is not added again', async () => {
  const adding = add();
  writeFileSync(file, `${KEY.publicKey}\n`);
  assert.equal((await adding).outcome, 'present');
  assert.equal(text(), `${KEY.publicKey}\n`);
});

test('a file that somebody changes all the time is left to them, with an error that says so', async () => {
  let changes = 0;
  let isOver = false;
  const change = () => {
    if (isOver) return;
    changes += 1;
    appendFileSync(file, `# ${changes}\n`);
    setImmediate(change);
  };
  change();
  const error = await rejectsWith('guest_conflict', add);
  isOver = true;
  assert.match(error.message, /is changed all the time/);
  assert.equal(text().trimEnd().split('\n').length, changes);
});
