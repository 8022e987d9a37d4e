/** Which public keys are taken and which are refused: what is taken logs in, what is refused is nowhere. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { keyFileLines, readKeyFile } from '../support/key-file.ts';
import { fingerprintOf, makeKeyPair, sameKeyPart } from '../support/keys.ts';
import { fidoKeys, oddKeys } from '../support/odd-keys.ts';
import { loginProblem } from '../support/ssh.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, skipLogins: skip, keyFolder } = house;
const main = await house.machine();
const path = `/v1/instances/${main.id}/add_key`;

const types = [
  ['ed25519'],
  ['ecdsa', '-b', '256'],
  ['ecdsa', '-b', '384'],
  ['ecdsa', '-b', '521'],
  ['rsa', '-b', '2048'],
  ['rsa', '-b', '3072'],
  ['rsa', '-b', '4096'],
];
for (const type of types) {
  test(`ssh-keygen -t ${type.join(' ')}: taken, and logs in`, async () => {
    const pair = await makeKeyPair(keyFolder, `made as ${type.join('')}`, ['-t', ...type]);
    const added = await api.addKey(main.id, { public_key: pair.publicKey });
    assert.ok(added.message.includes(await fingerprintOf(pair.publicKey)), added.message);
    if (skip !== false) return;
    assert.ok((await keyFileLines(main.login)).includes(pair.publicKey));
    assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
  });
}

test('keys of FIDO tokens are taken, and listed with the fingerprint of ssh-keygen', async () => {
  for (const publicKey of await fidoKeys(keyFolder)) {
    await api.addKey(main.id, { public_key: publicKey });
    const listed = await api.keys(main.id);
    const found = listed.find((key) => key.public_key === publicKey);
    assert.equal(found?.fingerprint, await fingerprintOf(publicKey));
  }
});

const around: readonly (readonly [string, (key: string) => string])[] = [
  ['a newline behind it', (key) => `${key}\n`],
  ['CRLF behind it', (key) => `${key}\r\n`],
  ['a carriage return behind it', (key) => `${key}\r`],
  ['white space around it', (key) => ` \t${key} \n\n`],
  ['no comment', (key) => key.split(' ').slice(0, 2).join(' ')],
  ['a comment of 1,000 characters', (key) => `${key} ${'c'.repeat(1000)}`],
  ['a comment that looks like options', (key) => `${key} command="x",from="y"`],
  ['a comment with a hash and quotes', (key) => `${key} # "quoted" 'and' \\back`],
  ['a comment in other alphabets', (key) => `${key} клавиша 鍵 🔑`],
];
for (const [name, change] of around) {
  test(`a key with ${name} is one line that logs in`, { skip }, async () => {
    const pair = await makeKeyPair(keyFolder, '');
    const given = change(pair.publicKey);
    const before = await readKeyFile(main.login);
    await api.addKey(main.id, { public_key: given });
    const expected = Buffer.concat([before, Buffer.from(`${given.trim()}\n`)]);
    assert.deepEqual(await readKeyFile(main.login), expected);
    assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
  });
}

/** Where the contract is silent, a key may be refused; but what is taken has to be one line that logs in. */
const disputed: readonly (readonly [string, string])[] = [
  ['a comment of 20,000 characters', 'c'.repeat(20_000)],
  ['a comment of 60,000 characters', 'c'.repeat(60_000)],
  ['a NEL in the comment', 'one\u0085two'],
  ['a line separator in the comment', 'one\u2028two'],
  ['a right-to-left override', 'one\u202etwo'],
  ['a lone surrogate', 'one\ud800two'],
  ['a tab in the comment', 'one\ttwo'],
  ['several spaces before the comment', '   indented'],
];
for (const [name, comment] of disputed) {
  test(`a key with ${name} is refused, or one line that logs in`, { skip }, async () => {
    const pair = await makeKeyPair(keyFolder, '');
    const before = await keyFileLines(main.login);
    const body = { public_key: `${sameKeyPart(pair.publicKey)} ${comment}` };
    const answer = await api.call('POST', path, { body });
    const added = (await keyFileLines(main.login)).length - before.length;
    if (answer.status === 400) {
      assert.equal(added, 0);
      return;
    }
    assert.equal(answer.status, 200, answer.text);
    assert.equal(added, 1);
    assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
  });
}

for (const odd of await oddKeys(keyFolder)) {
  test(`${odd.name} is a 400 that says why, and adds nothing`, async () => {
    const before = await api.keys(main.id);
    const refused = await api.refused(400, 'POST', path, { body: { public_key: odd.text } });
    assert.match(refused.message, odd.says);
    assert.ok(refused.message.length >= 20, 'it says what to do');
    const body = { ...SMALL_INSTANCE, public_key: odd.text };
    const atCreation = await api.refused(400, 'POST', '/v1/instances/create', { body });
    assert.match(atCreation.message, odd.says);
    const secretLines = odd.text.split(/\s/).filter((word) => word.length > 60);
    for (const secret of secretLines) assert.ok(!refused.message.includes(secret), 'no echo');
    assert.deepEqual(await api.keys(main.id), before);
    assert.equal((await api.instances()).size, 1);
  });
}

test('nothing that was refused stands in the file', { skip }, async () => {
  const text = (await readKeyFile(main.login)).toString();
  assert.doesNotMatch(text, /PRIVATE|BEGIN|ssh-dss|-cert-v01|rm -rf/);
});
