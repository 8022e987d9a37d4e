import assert from 'node:assert/strict';
import { sign, verify } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import ssh2 from 'ssh2';
import { AppError } from '../../src/domain/errors.ts';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import { parsePublicKey } from '../../src/domain/ssh-public-key.ts';

const HEADER = '-----BEGIN OPENSSH PRIVATE KEY-----\n';
const FOOTER = '\n-----END OPENSSH PRIVATE KEY-----\n';

test('the public half is one valid line with the comment', () => {
  const key = parsePublicKey(generateKeyPair('berth@example').publicKey.line);
  assert.equal(key.type, 'ssh-ed25519');
  assert.equal(key.comment, 'berth@example');
});

test('without a comment the line ends after the base64', () => {
  assert.match(generateKeyPair('').publicKey.line, /^ssh-ed25519 AAAA[^ ]+$/);
});

test('the private half has 70 columns and ends in a newline', () => {
  const { privateKey } = generateKeyPair('berth');
  assert.ok(privateKey.startsWith(HEADER) && privateKey.endsWith(FOOTER));
  const lines = privateKey.slice(HEADER.length, -FOOTER.length).split('\n');
  assert.ok(lines.slice(0, -1).every((line) => line.length === 70));
  assert.match(lines.at(-1) ?? '', /^[A-Za-z0-9+/]{1,70}={0,2}$/);
});

test('no two pairs share a key or a check number', () => {
  const pairs = Array.from({ length: 20 }, () => generateKeyPair('same'));
  const checkNumbers = pairs.map(({ privateKey }) => {
    const file = Buffer.from(privateKey.slice(HEADER.length, -FOOTER.length), 'base64');
    assert.equal(file.readUInt32BE(98), file.readUInt32BE(102));
    return file.readUInt32BE(98);
  });
  assert.equal(new Set(pairs.map(({ publicKey }) => publicKey.line)).size, 20);
  assert.equal(new Set(checkNumbers).size, 20);
});

test('property: another implementation reads both halves, and they belong together', () => {
  const comment = fc.stringMatching(/^[!-~é☕][ -~é☕]{0,40}[!-~é☕]$/);
  fc.assert(
    fc.property(comment, (given) => {
      const { publicKey, privateKey } = generateKeyPair(given);
      const parsed = ssh2.utils.parseKey(privateKey);
      assert.ok(!(parsed instanceof Error), String(parsed));
      assert.deepEqual(parsed.getPublicSSH(), parsePublicKey(publicKey.line).blob);
      assert.equal(Buffer.from(parsed.comment).toString(), given);
      const signature = sign(null, Buffer.from('text'), parsed.getPrivatePEM());
      assert.ok(verify(null, Buffer.from('text'), parsed.getPublicPEM(), signature));
    }),
    { numRuns: 60 },
  );
});

test('a comment that would break the line is refused', () => {
  for (const comment of ['a\nb', 'a\0b', '\u2028x']) {
    assert.throws(() => generateKeyPair(comment), AppError);
  }
});
