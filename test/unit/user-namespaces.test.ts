/** Which programs get a profile of AppArmor from us, and what is in it. */

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { profileOf, withoutProfile } from '../../scripts/user-namespaces.ts';

let folder: string;
const write = (name: string, text: string) => writeFileSync(join(folder, name), text);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'berth-profiles-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

test('where no profile is about them, both are without one', () => {
  mkdirSync(join(folder, 'abstractions'));
  write('abstractions/pasta', 'profile bwrap /usr/bin/bwrap {\n}\n');
  write('usr.bin.passt', 'profile passt /usr/bin/passt{,.avx2} {\n  /usr/bin/pasta.avx2 ix,\n}\n');
  write('README', '# profile bwrap /usr/bin/bwrap {\n');
  assert.deepEqual(withoutProfile(folder), ['bwrap', 'pasta']);
  assert.deepEqual(withoutProfile(join(folder, 'nowhere')), ['bwrap', 'pasta']);
});

test('what somebody has decided for a program stays', () => {
  write('bwrap-userns-restrict', 'profile bwrap /usr/bin/bwrap flags=(attach_disconnected) {\n}\n');
  assert.deepEqual(withoutProfile(folder), ['pasta']);
  write('usr.bin.pasta', 'profile pasta /usr/bin/pasta{,.avx2} {\n}\n');
  assert.deepEqual(withoutProfile(folder), []);
});

test('a profile of ours is found again, and permits its program alone', () => {
  write('berth-pasta', profileOf('pasta'));
  assert.deepEqual(withoutProfile(folder), ['bwrap']);
  assert.match(profileOf('pasta'), /^profile berth-pasta \/usr\/bin\/pasta\{,\.avx2\} flags=/m);
  assert.match(
    profileOf('bwrap'),
    /^profile berth-bwrap \/usr\/bin\/bwrap flags=\(unconfined\) \{\n {2}userns,/m,
  );
});
