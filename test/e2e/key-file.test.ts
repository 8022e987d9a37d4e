/** What stands in `authorized_keys`, whoever put it there, stays byte for byte. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { keyFileLines, linesWith, readKeyFile, writeKeyFile } from '../support/key-file.ts';
import { fingerprintOf, type KeyPair, makeKeyPair, saveKey } from '../support/keys.ts';
import { isDenied, loginProblem, sftp, sshWell } from '../support/ssh.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, skipLogins: skip, keyFolder } = house;
const main = await house.machine();
const own = main.publicKey;
const hand = await makeKeyPair(keyFolder, 'by hand');
const second = await makeKeyPair(keyFolder, 'by hand, too');

const contents: readonly (readonly [string, Buffer])[] = [
  ['no final newline', Buffer.from(own)],
  ['CRLF', Buffer.from(`# made elsewhere\r\n${own}\r\n\r\n${hand.publicKey}\r\n`)],
  ['CRLF without a final newline', Buffer.from(`${hand.publicKey}\r\n${own}`)],
  ['comments and blank lines', Buffer.from(`#\n\n   \t\n# ${hand.publicKey}\n\n${own}\n\n\n`)],
  [
    'options',
    Buffer.from(
      `from="127.0.0.1,::1",no-agent-forwarding,environment="A=b c" ${hand.publicKey}\n` +
        `command="echo \\"quoted\\"; true" ${second.publicKey}\n  \t${own}\n`,
    ),
  ],
  [
    'lines that are no keys and bytes that are no UTF-8',
    Buffer.concat([
      Buffer.from('ssh-ed25519 garbage\n"\n'),
      Buffer.from([0x23, 0xff, 0xfe, 0x00, 0xc3, 0x28, 0x0a]),
      Buffer.from(`${own}\n\r\r\n`),
    ]),
  ],
  ['a line of 100 kB', Buffer.from(`# ${'x'.repeat(100_000)}\n${own}\n`)],
];

/** What the file has to be after one key was added. */
function withLine(before: Buffer, line: string): Buffer {
  const ended = before.length === 0 || before.at(-1) === 0x0a;
  return Buffer.concat([before, Buffer.from(`${ended ? '' : '\n'}${line}\n`)]);
}

for (const [name, content] of contents) {
  test(`hand-made file with ${name}: a key is appended, the rest untouched`, { skip }, async () => {
    await writeKeyFile(main.login, content);
    const pair = await makeKeyPair(keyFolder);
    await api.addKey(main.id, { public_key: pair.publicKey });
    const expected = withLine(content, pair.publicKey);
    assert.deepEqual(await readKeyFile(main.login), expected);
    assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
    await api.addKey(main.id, { public_key: pair.publicKey });
    assert.deepEqual(await readKeyFile(main.login), expected, 'once more changes nothing');
    const generated = saveKey(keyFolder, (await api.addKey(main.id)).key);
    assert.equal(await loginProblem({ ...main.login, keyFile: generated }), undefined);
  });

  test(`hand-made file with ${name}: removing a key takes only its line`, { skip }, async () => {
    await writeKeyFile(main.login, content);
    const pair = await makeKeyPair(keyFolder);
    await api.addKey(main.id, { public_key: pair.publicKey });
    await removeKey(pair);
    const ended = content.at(-1) === 0x0a ? content : Buffer.concat([content, Buffer.from('\n')]);
    assert.deepEqual(await readKeyFile(main.login), ended);
  });
}

async function removeKey(pair: KeyPair, encode = true): Promise<void> {
  const fingerprint = await fingerprintOf(pair.publicKey);
  const last = encode ? encodeURIComponent(fingerprint) : fingerprint;
  const answer = await api.call('DELETE', `/v1/instances/${main.id}/keys/${last}`);
  assert.equal(answer.status, 204, answer.text);
}

test('a key that SFTP put there before is found and not doubled', { skip }, async () => {
  const local = join(keyFolder, 'authorized_keys');
  writeFileSync(local, `${own}\n${hand.publicKey}\n`);
  await sftp(main.login, `put ${local} .ssh/authorized_keys\n`);
  await api.addKey(main.id, { public_key: hand.publicKey });
  assert.equal((await readKeyFile(main.login)).toString(), `${own}\n${hand.publicKey}\n`);
  const listed = await api.keys(main.id);
  assert.deepEqual(
    listed.map((key) => key.public_key),
    [own, hand.publicKey],
  );
  assert.equal(await loginProblem({ ...main.login, keyFile: hand.keyFile }), undefined);
});

for (const command of ['rm ~/.ssh/authorized_keys', 'rm -r ~/.ssh', ': > ~/.ssh/authorized_keys']) {
  test(`after "${command}" an added key logs in`, { skip }, async () => {
    await sshWell(main.login, command);
    await api.addKey(main.id, { public_key: own });
    assert.equal((await readKeyFile(main.login)).toString(), `${own}\n`);
    const modes = await sshWell(main.login, 'stat -c "%a %U" ~/.ssh ~/.ssh/authorized_keys');
    assert.equal(modes, '700 ubuntu\n600 ubuntu\n');
  });
}

/** A pair whose fingerprint has this character, which a path has to carry. */
async function pairWith(character: string): Promise<KeyPair> {
  for (;;) {
    const pair = await makeKeyPair(keyFolder);
    if ((await fingerprintOf(pair.publicKey)).includes(character)) return pair;
  }
}

for (const encode of [true, false]) {
  for (const character of ['/', '+']) {
    const how = encode ? 'encoded' : 'raw';
    test(`DELETE of a key with "${character}" in its ${how} fingerprint`, { skip }, async () => {
      const pair = await pairWith(character);
      await api.addKey(main.id, { public_key: pair.publicKey });
      assert.equal((await linesWith(main.login, pair.publicKey)).length, 1);
      await removeKey(pair, encode);
      assert.equal((await linesWith(main.login, pair.publicKey)).length, 0);
      assert.ok(await isDenied({ ...main.login, keyFile: pair.keyFile }));
      assert.ok(!(await api.instance(main.id)).sshPublicKeys.includes(pair.publicKey));
      const fingerprint = await fingerprintOf(pair.publicKey);
      const path = `/v1/instances/${main.id}/keys/${encodeURIComponent(fingerprint)}`;
      await api.refused(404, 'DELETE', path);
      assert.equal(await loginProblem(main.login), undefined);
    });
  }
}

test('the list of keys is the file: fingerprints as ssh-keygen prints them', { skip }, async () => {
  const rsa = await makeKeyPair(keyFolder, 'rsa comment', ['-t', 'rsa', '-b', '2048']);
  await api.addKey(main.id, { public_key: rsa.publicKey });
  const listed = await api.keys(main.id);
  const found = listed.find((key) => key.public_key === rsa.publicKey);
  assert.ok(found !== undefined, JSON.stringify(listed));
  assert.equal(found.fingerprint, await fingerprintOf(rsa.publicKey));
  assert.deepEqual([found.key_type, found.comment], ['ssh-rsa', 'rsa comment']);
  assert.match(found.added_at ?? '', /^\d{4}-/);
  assert.equal(listed.length, (await keyFileLines(main.login)).length);
});

test('DELETE of a fingerprint that is none is refused and removes nothing', { skip }, async () => {
  const before = await readKeyFile(main.login);
  for (const bad of [
    'SHA256:',
    'nonsense',
    'SHA256:%00',
    `SHA256:${'A'.repeat(43)}`,
    'MD5:aa:bb',
  ]) {
    const answer = await api.call('DELETE', `/v1/instances/${main.id}/keys/${bad}`);
    assert.ok(answer.status === 404 || answer.status === 400, `${bad}: ${answer.text}`);
  }
  assert.deepEqual(await readKeyFile(main.login), before);
});
