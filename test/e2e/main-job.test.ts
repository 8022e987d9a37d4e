/** The job Berth is for: make an instance, add keys to it, log in with each. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { checkAddedKey, SMALL_INSTANCE } from '../support/client.ts';
import { UUID } from '../support/contract.ts';
import { loginTo, openHouse, WAY_UP } from '../support/house.ts';
import { keyFileLines, linesWith } from '../support/key-file.ts';
import { fingerprintOf, makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import { runWell } from '../support/run.ts';
import { loginProblem, scp, sftp, sshWell } from '../support/ssh.ts';
import { pooled } from '../support/waiting.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, skipLogins: skip, keyFolder } = house;
const main = await house.machine();

test('a created instance shows the contract on its way up and at the end', async () => {
  const pair = await makeKeyPair(keyFolder);
  const wanted = { ...SMALL_INSTANCE, gpu_type: 'CPU', public_key: pair.publicKey };
  const created = await api.createInstance(wanted);
  assert.equal(created.key, '', 'no private key for a supplied public key');
  const running = await api.reach(created.uuid, 'RUNNING', WAY_UP);
  assert.match(running.uuid, UUID);
  assert.equal(running.id, String(created.identifier));
  assert.equal(running.gpuType, 'CPU', 'echoed as the caller wrote it');
  assert.deepEqual(running.sshPublicKeys, [pair.publicKey]);
  assert.deepEqual([running.cpuCores, running.numGpus, running.storage], ['1', '1', 10]);
  assert.deepEqual([running.mode, running.template], ['prototyping', 'base']);
  assert.equal(running.provisioningTime, undefined, 'only while it applies');
  assert.equal(running.failure, undefined);
  assert.deepEqual((await api.instances()).get(running.id), running);
  assert.deepEqual(await api.instance(running.id), running, 'by number as by UUID');
});

test('the key an instance was created with logs in', { skip }, async () => {
  assert.equal(await loginProblem(main.login), undefined);
});

test('an instance created without a key answers with a generated one', async () => {
  const created = await api.createInstance(SMALL_INSTANCE);
  assert.ok(created.key.endsWith('-----END OPENSSH PRIVATE KEY-----\n'));
  const running = await api.reach(created.uuid, 'RUNNING', WAY_UP);
  const keyFile = saveKey(keyFolder, created.key);
  const [line = ''] = running.sshPublicKeys;
  const derived = await publicHalf(keyFile);
  assert.deepEqual(line.split(' ').slice(0, 2), derived.split(' ').slice(0, 2));
  if (skip === false) assert.equal(await loginProblem(loginTo(running, keyFile)), undefined);
  await api.deleteInstance(created.uuid);
  await api.gone(created.uuid);
});

test('a supplied key is added as given, and logs in', async () => {
  const pair = await makeKeyPair(keyFolder, 'a comment with spaces é');
  const added = await api.addKey(main.id, { public_key: `  ${pair.publicKey}\r\n` });
  assert.equal(added.key, '');
  assert.equal(added.uuid, main.uuid);
  assert.ok(added.message.includes(await fingerprintOf(pair.publicKey)));
  assert.ok((await api.instance(main.id)).sshPublicKeys.includes(pair.publicKey));
  if (skip !== false) return;
  assert.ok((await keyFileLines(main.login)).includes(pair.publicKey), 'the comment is kept');
  assert.equal(await loginProblem({ ...main.login, keyFile: pair.keyFile }), undefined);
});

const json = { 'content-type': 'application/json' };
const emptyForms = [
  ['no body at all', {}],
  ['an empty body with a JSON content type', { rawBody: '', headers: json }],
  ['{}', { body: {} }],
  ['null for the key', { body: { public_key: null } }],
  ['unknown fields alone', { body: { unknown: [1], colour: 'red' } }],
] as const;
for (const [name, options] of emptyForms) {
  test(`a key is generated for ${name}, and works unmodified`, async () => {
    const answer = await api.call('POST', `/v1/instances/${main.uuid}/add_key`, options);
    const added = checkAddedKey(answer);
    assert.notEqual(added.key, '');
    const keyFile = saveKey(keyFolder, added.key);
    const derived = await publicHalf(keyFile);
    assert.match(derived, /^ssh-ed25519 /);
    assert.ok(added.message.includes(await fingerprintOf(derived)));
    if (skip === false) {
      assert.equal(await loginProblem({ ...main.login, keyFile }), undefined);
    }
  });
}

test('every repeated request for a generated key gives another key', async () => {
  const first = await api.addKey(main.id);
  const second = await api.addKey(main.id);
  assert.notEqual(first.key, second.key);
});

test('the same key twice, also under another comment, leaves one line', { skip }, async () => {
  const pair = await makeKeyPair(keyFolder, 'first comment');
  await api.addKey(main.id, { public_key: pair.publicKey });
  const before = await keyFileLines(main.login);
  await api.addKey(main.id, { public_key: pair.publicKey });
  const renamed = `${pair.publicKey.split(' ').slice(0, 2).join(' ')} second comment`;
  const again = await api.addKey(main.id, { public_key: renamed });
  assert.equal(again.key, '');
  assert.deepEqual(await keyFileLines(main.login), before);
  assert.deepEqual(await linesWith(main.login, pair.publicKey), [pair.publicKey]);
  const shown = (await api.instance(main.id)).sshPublicKeys;
  assert.equal(shown.filter((line) => line.startsWith(renamed.slice(0, 60))).length, 1);
});

test('the same key in eight requests at once leaves one line', { skip }, async () => {
  const pair = await makeKeyPair(keyFolder);
  const body = { public_key: pair.publicKey };
  await Promise.all(Array.from({ length: 8 }, () => api.addKey(main.id, body)));
  assert.deepEqual(await linesWith(main.login, pair.publicKey), [pair.publicKey]);
});

test('64 different keys at once on one instance all log in', { skip }, async () => {
  const pairs = await pooled(Array.from({ length: 32 }), 4, () => makeKeyPair(keyFolder));
  const supplied = pairs.map(async (pair) => {
    await api.addKey(main.id, { public_key: pair.publicKey });
    return pair.keyFile;
  });
  const generated = pairs.map(async () => saveKey(keyFolder, (await api.addKey(main.id)).key));
  const keyFiles = await Promise.all([...supplied, ...generated]);
  const problems = await pooled(keyFiles, 6, (keyFile) => loginProblem({ ...main.login, keyFile }));
  assert.deepEqual(
    problems.filter((problem) => problem !== undefined),
    [],
  );
  assert.equal(new Set(keyFiles).size, 64);
});

test('an instance gives exec, a terminal, SFTP and scp', { skip }, async () => {
  const { login } = main;
  assert.equal(await sshWell(login, 'id -un; pwd'), 'ubuntu\n/home/ubuntu\n');
  assert.equal(await sshWell(login, 'cat; exit 0', { input: 'through stdin' }), 'through stdin');
  const terminal = await runWell('ssh', [
    '-tt',
    ...['-F', 'none', '-o', 'BatchMode=yes', '-o', 'IdentitiesOnly=yes', '-o', 'LogLevel=ERROR'],
    ...['-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null'],
    ...['-i', login.keyFile, '-p', String(login.port), `ubuntu@${login.host}`, 'test -t 0 && tty'],
  ]);
  assert.match(terminal, /^\/dev\/pts\/\d+/);
  await sftp(login, `put ${login.keyFile}.pub by-sftp\n`);
  await scp(login, `${login.keyFile}.pub`, 'by-scp', false);
  await scp(login, `${login.keyFile}.pub`, 'by-old-scp', true);
  assert.equal(await sshWell(login, 'cat by-sftp by-scp by-old-scp | sort -u | wc -l'), '1\n');
});
