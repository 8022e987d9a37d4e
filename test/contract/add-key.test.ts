/**
 * The contract's section 1, `POST /v1/instances/{id}/add_key`, sentence by sentence. Elsewhere: what a guest can put in
 * the way (e2e/hostile-guest.test.ts), every odd public key (unit/ssh-public-key.test.ts, e2e/public-keys.test.ts),
 * answers that never arrived (e2e/response-cut.test.ts), logs (e2e/secrets.test.ts).
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { checkAddedKey } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { keyFileLines, linesWith, readKeyFile, writeKeyFile } from '../support/key-file.ts';
import { fingerprintOf, makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import { isDenied, loginProblem } from '../support/ssh.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, keyFolder, service, skipLogins: skip } = house;
const main = await house.machine();

const add = async (body?: unknown, id = main.id) =>
  checkAddedKey(await api.call('POST', `/v1/instances/${id}/add_key`, { body }));
const refuse = (body: unknown, status = 400) =>
  api.refused(status, 'POST', `/v1/instances/${main.id}/add_key`, { body });

test('"{id} is a string: the number or its UUID"', async () => {
  for (const id of [main.id, main.uuid]) assert.equal((await add(undefined, id)).uuid, main.uuid);
});

test('"All four fields are always there", key "" when the caller supplied the public key', async () => {
  const { publicKey } = await makeKeyPair(keyFolder);
  for (const body of [{ public_key: publicKey }, undefined]) {
    const path = `/v1/instances/${main.id}/add_key`;
    const { text } = await api.call('POST', path, { body });
    assert.deepEqual(Object.keys(JSON.parse(text)).sort(), ['key', 'message', 'success', 'uuid']);
  }
  const added = await add({ public_key: publicKey });
  assert.equal(added.key, '');
  assert.ok(added.message.includes(await fingerprintOf(publicKey)), 'the SHA256 fingerprint');
});

test('"Keys already in that file stay byte for byte", whoever put them there', {
  skip,
}, async () => {
  const other = await makeKeyPair(keyFolder, 'by hand');
  const start = await readKeyFile(main.login);
  const handmade = `# a comment\n\n  ${other.publicKey}\t\nnot a key at all \xff\n`;
  const before = Buffer.concat([start, Buffer.from(handmade, 'latin1')]);
  await writeKeyFile(main.login, before);
  const { publicKey } = await makeKeyPair(keyFolder);
  await add({ public_key: publicKey });
  const wanted = Buffer.concat([before, Buffer.from(`${publicKey}\n`)]);
  assert.deepEqual(await readKeyFile(main.login), wanted);
});

test('"A file without a final newline gets one first"', { skip }, async () => {
  const start = await readKeyFile(main.login);
  await writeKeyFile(main.login, start.subarray(0, -1));
  const { publicKey } = await makeKeyPair(keyFolder);
  await add({ public_key: publicKey });
  assert.deepEqual(
    await readKeyFile(main.login),
    Buffer.concat([start, Buffer.from(`${publicKey}\n`)]),
  );
});

test('"The same key (same type and blob, whatever its comment) is a success that changes nothing"', {
  skip,
}, async () => {
  const { publicKey } = await makeKeyPair(keyFolder, 'first');
  await add({ public_key: publicKey });
  const before = await readKeyFile(main.login);
  for (const comment of ['', ' second', ' first']) {
    const bare = publicKey.split(' ').slice(0, 2).join(' ');
    assert.equal((await add({ public_key: bare + comment })).key, '');
  }
  assert.deepEqual(await readKeyFile(main.login), before);
});

test('"an Ed25519 key pair is generated": OpenSSH format, ends in a newline, usable as is', {
  skip,
}, async () => {
  const added = await add();
  const keyFile = saveKey(keyFolder, added.key);
  const half = await publicHalf(keyFile);
  assert.match(half, /^ssh-ed25519 /);
  assert.ok(added.message.includes(await fingerprintOf(half)));
  assert.equal(await loginProblem({ ...main.login, keyFile }), undefined);
  assert.equal((await linesWith(main.login, half)).length, 1);
});

test('"never stored and never logged": neither database nor log has the private half', async () => {
  const added = await add();
  const body = added.key.split('\n').slice(1, -2);
  const files = ['berth.db', 'berth.db-wal'].map((name) => join(service.dataFolder, name));
  for (const file of [...files, service.logFile, service.outputFile]) {
    const text = readFileSync(file, 'latin1');
    assert.ok(!text.includes('PRIVATE KEY'), file);
    // The first lines hold what every such key begins with; the last are its secret.
    for (const line of body.slice(2)) assert.ok(!text.includes(line), file);
  }
});

test('verify "proves the login before answering"', { skip }, async () => {
  const pair = await makeKeyPair(keyFolder);
  await add({ public_key: pair.publicKey, verify: true });
  assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
});

test('expires_in_seconds: 60 to 31,536,000, written before the key as expiry-time', {
  skip,
}, async () => {
  for (const seconds of [60, 31_536_000]) {
    const { publicKey } = await makeKeyPair(keyFolder);
    await add({ public_key: publicKey, expires_in_seconds: seconds });
    const [line = ''] = await linesWith(main.login, publicKey);
    assert.match(line, /^expiry-time="\d{14}Z" ssh-ed25519 /);
    assert.ok(line.endsWith(publicKey), 'the key as given after it');
  }
  for (const seconds of [59, 31_536_001, -1, 0]) {
    assert.match((await refuse({ expires_in_seconds: seconds })).message, /expires_in_seconds/);
  }
});

test('"The instance must be RUNNING, else 409 that names its status"', async () => {
  const other = await house.machine();
  await api.stopInstance(other.id);
  await api.reach(other.id, 'STOPPED', ['STOPPING']);
  const path = `/v1/instances/${other.id}/add_key`;
  assert.match((await api.refused(409, 'POST', path)).message, /\bSTOPPED\b/);
  await api.deleteInstance(other.id);
});

const KINDS = [
  ['-t', 'ed25519'],
  ['-t', 'ecdsa', '-b', '256'],
  ['-t', 'ecdsa', '-b', '384'],
  ['-t', 'ecdsa', '-b', '521'],
  ['-t', 'rsa', '-b', '2048'],
];
for (const kind of KINDS) {
  test(`"A public key is one line in OpenSSH format": ${kind.join(' ')} is taken and logs in`, async () => {
    const pair = await makeKeyPair(keyFolder, `of ${kind.join(' ')}`, kind);
    await add({ public_key: ` \t${pair.publicKey}\r` });
    const shown = (await api.instance(main.id)).sshPublicKeys;
    assert.ok(shown.includes(pair.publicKey), 'trimmed, the comment kept');
    if (skip !== false) return;
    assert.ok((await keyFileLines(main.login)).includes(pair.publicKey));
    assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
  });
}

const good = (await makeKeyPair(keyFolder)).publicKey;
const [type = '', blob = ''] = good.split(' ');
const shortRsa = (await makeKeyPair(keyFolder, 'short', ['-t', 'rsa', '-b', '1024'])).publicKey;
const privateKey = (): string => readFileSync(main.keyFile, 'utf8');
const REFUSED: readonly (readonly [string, string, RegExp])[] = [
  ['an empty string', '', /empty|public_key|key/i],
  ['nothing but white space', ' \n', /./],
  ['DSA', good.replace(type, 'ssh-dss'), /DSA|ssh-dss/i],
  ['short RSA', shortRsa, /2048/],
  ['a certificate', good.replace(type, 'ssh-ed25519-cert-v01@openssh.com'), /certificate/i],
  ['options before the key', `command="id" ${good}`, /option/i],
  ['more than one line', `${good}\n${good}`, /line/i],
  ['control characters', `${good}\u0007`, /control/i],
  ['a blob that is not canonical base64', `${type} ${blob.slice(0, -1)}=`, /./],
  ['an inner type that differs', `ecdsa-sha2-nistp256 ${blob}`, /./],
  ['PEM', '-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----', /./],
  ['RFC 4716', `---- BEGIN SSH2 PUBLIC KEY ----\n${blob}\n---- END SSH2 PUBLIC KEY ----`, /./],
  ['a private key', privateKey(), /exposed|private/i],
];
for (const [name, key, message] of REFUSED) {
  test(`"Refused with a 400 that says why and how to mend it": ${name}`, async () => {
    const before = await api.keys(main.id);
    const refused = await refuse({ public_key: key });
    assert.match(refused.message, message);
    if (name === 'a private key') assert.match(refused.message, /exposed/, 'treat it as exposed');
    assert.ok(key.length < 40 || !refused.message.includes(key.slice(-30).trim()), 'not repeated');
    assert.deepEqual(await api.keys(main.id), before);
  });
}

test('"Two requests at once on one instance both land"', { skip }, async () => {
  const pairs = await Promise.all([makeKeyPair(keyFolder), makeKeyPair(keyFolder)]);
  await Promise.all(pairs.map(({ publicKey }) => add({ public_key: publicKey })));
  for (const { publicKey, keyFile } of pairs) {
    assert.equal((await linesWith(main.login, publicKey)).length, 1);
    assert.equal(await loginProblem({ ...main.login, keyFile }), undefined);
  }
});

test('DELETE keys/{fingerprint}: 204; "the line is gone from the file, and only that line"', {
  skip,
}, async () => {
  const pair = await makeKeyPair(keyFolder);
  const before = await readKeyFile(main.login);
  await add({ public_key: pair.publicKey });
  const fingerprint = await fingerprintOf(pair.publicKey);
  const listed = (await api.keys(main.id)).find((one) => one.fingerprint === fingerprint);
  assert.deepEqual(
    [listed?.key_type, listed?.comment, listed?.public_key],
    ['ssh-ed25519', 'test@example', pair.publicKey],
  );
  const path = `/v1/instances/${main.id}/keys/${encodeURIComponent(fingerprint)}`;
  const answer = await api.call('DELETE', path);
  assert.deepEqual([answer.status, answer.text], [204, '']);
  assert.deepEqual(await readKeyFile(main.login), before);
  assert.ok(await isDenied({ ...main.login, keyFile: pair.keyFile }));
  await api.refused(404, 'DELETE', path);
});
