import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deriveKey, keyedHash, seal, unseal } from '../../src/domain/sealing.ts';

const key = deriveKey('a secret', 'test', 'salt');
const text = 'what only the owner may read \u{1f511}';

test('what was sealed opens again, and looks different every time', () => {
  const sealed = seal(key, 'row 1', text);
  assert.equal(unseal(key, 'row 1', sealed), text);
  assert.notEqual(seal(key, 'row 1', text), sealed);
  assert.ok(!Buffer.from(sealed, 'base64url').includes('owner'));
});

test('another secret, purpose, salt or binding opens nothing', () => {
  const sealed = seal(key, 'row 1', text);
  for (const wrong of [
    deriveKey('b secret', 'test', 'salt'),
    deriveKey('a secret', 'other', 'salt'),
    deriveKey('a secret', 'test', 'other'),
  ]) {
    assert.throws(() => unseal(wrong, 'row 1', sealed));
  }
  assert.throws(() => unseal(key, 'row 2', sealed));
});

test('no bit of it can be changed, and nothing cut off', () => {
  const bytes = Buffer.from(seal(key, 'row 1', text), 'base64url');
  for (let at = 0; at < bytes.length; at += 1) {
    const changed = Buffer.from(bytes);
    changed[at] = (changed[at] ?? 0) ^ 1;
    assert.throws(() => unseal(key, 'row 1', changed.toString('base64url')), `byte ${at}`);
  }
  for (const length of [0, 5, 12, 27, bytes.length - 1]) {
    const cut = bytes.subarray(0, length).toString('base64url');
    assert.throws(() => unseal(key, 'row 1', cut), `${length} bytes`);
  }
});

test('a keyed hash tells where one part ends', () => {
  assert.notEqual(keyedHash(key, ['ab', 'c']), keyedHash(key, ['a', 'bc']));
  assert.notEqual(keyedHash(key, ['a']), keyedHash(deriveKey('b', 'test', 'salt'), ['a']));
  assert.match(keyedHash(key, ['a']), /^[0-9a-f]{64}$/);
});
