import assert from 'node:assert/strict';
import { test } from 'node:test';
import { listKeyLines, listKeys } from '../../src/domain/authorized-keys.ts';
import { accessOf, mostAccess } from '../../src/domain/key-line-access.ts';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';

const KEY = generateKeyPair('berth').publicKey.line;
const NOW = Date.UTC(2026, 4, 4);

const accesses: readonly (readonly [string, string])[] = [
  ['', 'full'],
  ['environment="A=b" ', 'full'],
  ['no-touch-required ', 'full'],
  ['pty,agent-forwarding ', 'full'],
  ['principals="x" ', 'full'],
  ['expiry-time="20270101Z" ', 'full'],
  ['from="10.0.0.1" ', 'limited'],
  ['command="true" ', 'limited'],
  ['COMMAND="a, b \\"c\\"" ', 'limited'],
  ['restrict,pty ', 'limited'],
  ['no-port-forwarding ', 'limited'],
  ['permitopen="h:1",expiry-time="20270101Z" ', 'limited'],
  ['verify-required ', 'limited'],
  ['expiry-time="20260101Z" ', 'expired'],
  ['from="10.0.0.1",expiry-time="20260101Z" ', 'expired'],
  ['cert-authority,expiry-time="20260101Z" ', 'expired'],
  ['cert-authority ', 'signer'],
  ['Cert-Authority,principals="root",from="10.0.0.1" ', 'signer'],
  ['nonsense ', 'ignored'],
  ['command=true ', 'ignored'],
  ['expiry-time="soon" ', 'ignored'],
  ['cert-authority,nonsense ', 'ignored'],
];
for (const [options, access] of accesses) {
  test(`a line with "${options.trim()}" is ${access}`, () => {
    const lines = listKeyLines(Buffer.from(`${options}${KEY}\n`));
    assert.deepEqual(
      lines.map((line) => accessOf(line, NOW)),
      [access],
    );
  });
}

test('a DSA key does not log in', () => {
  const name = Buffer.from('\0\0\0\x07ssh-dss').toString('base64');
  const [line] = listKeyLines(Buffer.from(`ssh-dss ${name}\n`));
  assert.ok(line);
  assert.equal(accessOf(line, NOW), 'ignored');
});

test('of several lines the most counts', () => {
  assert.equal(mostAccess(['expired', 'limited', 'ignored']), 'limited');
  assert.equal(mostAccess(['ignored', 'signer']), 'signer');
  assert.equal(mostAccess([]), undefined);
});

test('a cert-authority line is a line with a key, and no key that logs in', () => {
  const file = Buffer.from(`# ${KEY}\ncert-authority ${KEY}\n${KEY}\nnot a key\n`);
  assert.deepEqual(
    listKeyLines(file).map(({ options }) => options),
    ['cert-authority', ''],
  );
  assert.deepEqual(
    listKeys(file).map(({ options }) => options),
    [''],
  );
});
