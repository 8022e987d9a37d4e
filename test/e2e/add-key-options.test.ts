/** `verify` and `expires_in_seconds`, and what a request for a key may not be. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { linesWith } from '../support/key-file.ts';
import { makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import { loginProblem } from '../support/ssh.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, skipLogins: skip, keyFolder } = house;
const main = await house.machine();
const addKeyPath = `/v1/instances/${main.id}/add_key`;

test('verify proves the login of a supplied and of a generated key', { skip }, async () => {
  const pair = await makeKeyPair(keyFolder);
  await api.addKey(main.id, { public_key: pair.publicKey, verify: true });
  assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
  const added = await api.addKey(main.id, { verify: true });
  const keyFile = saveKey(keyFolder, added.key);
  assert.equal(await loginProblem({ ...main.login, keyFile }), undefined);
});

test('verify works for every accepted type ssh-keygen can make', { skip }, async () => {
  const kinds = [
    ['-t', 'rsa', '-b', '2048'],
    ['-t', 'ecdsa', '-b', '256'],
    ['-t', 'ecdsa', '-b', '521'],
  ];
  for (const kind of kinds) {
    const pair = await makeKeyPair(keyFolder, 'verified', kind);
    await api.addKey(main.id, { public_key: pair.publicKey, verify: true });
  }
});

/** The moment an `expiry-time="YYYYMMDDHHMMSSZ"` option names, in seconds since the epoch. */
function expiryOf(line: string): number {
  const found = /^expiry-time="(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z" ssh-/.exec(line);
  assert.ok(found !== null, line);
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = found
    .slice(1)
    .map(Number);
  return Date.UTC(year, month - 1, day, hour, minute, second) / 1000;
}

for (const seconds of [61, 60, 86_400, 31_536_000]) {
  test(`expires_in_seconds ${seconds} writes expiry-time, and ssh works now`, {
    skip,
  }, async () => {
    const asked = Date.now() / 1000;
    const added = await api.addKey(main.id, { expires_in_seconds: seconds });
    const keyFile = saveKey(keyFolder, added.key);
    const lines = await linesWith(main.login, await publicHalf(keyFile));
    assert.equal(lines.length, 1);
    const left = expiryOf(lines[0] ?? '') - asked;
    assert.ok(left >= seconds - 1 && left <= seconds + 5, `${left} seconds`);
    assert.equal(await loginProblem({ ...main.login, keyFile }), undefined);
  });
}

test('a key that was to expire and is added for good stays for good', { skip }, async () => {
  const pair = await makeKeyPair(keyFolder);
  await api.addKey(main.id, { public_key: pair.publicKey, expires_in_seconds: 60 });
  await api.addKey(main.id, { public_key: pair.publicKey });
  const lines = await linesWith(main.login, pair.publicKey);
  assert.ok(lines.includes(pair.publicKey), `one line has no expiry: ${lines}`);
});

test('a key that is there for good stays so when asked for with an expiry', { skip }, async () => {
  const pair = await makeKeyPair(keyFolder);
  await api.addKey(main.id, { public_key: pair.publicKey });
  await api.addKey(main.id, { public_key: pair.publicKey, expires_in_seconds: 60 });
  assert.ok((await linesWith(main.login, pair.publicKey)).includes(pair.publicKey));
});

const refusedOptions: readonly (readonly [string, unknown])[] = [
  ['expires_in_seconds', 59],
  ['expires_in_seconds', 31_536_001],
  ['expires_in_seconds', 0],
  ['expires_in_seconds', -60],
  ['expires_in_seconds', 60.5],
  ['expires_in_seconds', '60'],
  ['expires_in_seconds', true],
  ['expires_in_seconds', [60]],
  ['verify', 'true'],
  ['verify', 1],
  ['verify', {}],
  ['public_key', 7],
  ['public_key', true],
  ['public_key', ['ssh-ed25519 AAAA']],
  ['public_key', {}],
];
for (const [field, value] of refusedOptions) {
  test(`${field}: ${JSON.stringify(value)} is a 400 that names it, and adds nothing`, async () => {
    const before = await api.keys(main.id);
    const refused = await api.refused(400, 'POST', addKeyPath, { body: { [field]: value } });
    assert.ok(refused.message.includes(field), refused.message);
    assert.deepEqual(await api.keys(main.id), before);
  });
}

test('a body that is not an object is a 400', async () => {
  for (const rawBody of ['[]', '"ssh-ed25519 AAAA"', '7', 'true', '[{}]']) {
    const headers = { 'content-type': 'application/json' };
    await api.refused(400, 'POST', addKeyPath, { rawBody, headers });
  }
});

test('null counts as absent for every option', async () => {
  const body = { public_key: null, verify: null, expires_in_seconds: null };
  assert.notEqual((await api.addKey(main.id, body)).key, '');
});

test('a failed add never answers a cached or stored key', async () => {
  const answer = await api.call('POST', addKeyPath, { body: { public_key: '' } });
  assert.equal(answer.status, 400);
  assert.doesNotMatch(answer.text, /PRIVATE KEY/);
});
