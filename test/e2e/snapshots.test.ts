/** Snapshots: take, list, delete the source, restore, log in to the copy. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import type { Snapshot } from '../support/contract.ts';
import { loginTo, openHouse, RESTORE_WAY_UP } from '../support/house.ts';
import { makeKeyPair, saveKey } from '../support/keys.ts';
import { hostKeys, loginProblem, sshWell } from '../support/ssh.ts';
import { sleep } from '../support/waiting.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, skipLogins: skip, keyFolder } = house;
const main = await house.machine();
const LIST = '/v1/snapshots/list';

async function conditional(ifNoneMatch: string): Promise<number> {
  const answer = await api.call('GET', LIST, { headers: { 'if-none-match': ifNoneMatch } });
  return answer.status;
}

async function currentTag(): Promise<string> {
  const { etag } = (await api.call('GET', LIST)).headers;
  assert.match(etag ?? '', /^"[^"]+"$/, 'a strong ETag');
  return etag ?? '';
}

test('an organization without snapshots has an empty array, with an ETag', async () => {
  assert.deepEqual(await api.snapshots(), []);
  assert.equal(await conditional(await currentTag()), 304);
});

test('a snapshot is listed from its acceptance, and becomes READY', async () => {
  const before = Math.floor(Date.now() / 1000);
  await api.createSnapshot(main.id, 'before-upgrade');
  const [accepted] = await api.snapshots();
  assert.equal(accepted?.name, 'before-upgrade');
  if (accepted?.status === 'CREATING') assert.equal(accepted.minimumDiskSizeGb, 10);
  assert.ok(accepted.createdAt >= before && accepted.createdAt <= Date.now() / 1000 + 1);
  const ready = await api.snapshotReady('before-upgrade');
  assert.deepEqual([ready.id, ready.createdAt], [accepted.id, accepted.createdAt]);
  assert.ok(ready.minimumDiskSizeGb >= 1 && ready.minimumDiskSizeGb <= 10);
  assert.equal((await api.instance(main.id)).status, 'RUNNING');
});

test('the list is ordered by creation, then id, and has exactly the five fields', async () => {
  await api.createSnapshot(main.uuid, 'zulu');
  await api.snapshotReady('zulu');
  await sleep(1100);
  await api.createSnapshot(main.id, 'Alpha_1.2-3');
  await api.snapshotReady('Alpha_1.2-3');
  const listed = await api.snapshots();
  const byAge = (a: Snapshot, b: Snapshot): number =>
    a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1);
  assert.deepEqual(listed, [...listed].sort(byAge));
  assert.equal(listed.at(-1)?.name, 'Alpha_1.2-3');
  assert.equal(listed.length, 3);
});

test('ETag: 304 for the tag, a list with it, a weak form and *; 200 for others', async () => {
  const tag = await currentTag();
  for (const match of [tag, `"other", ${tag}`, `${tag},"other"`, `W/${tag}`, '*', ` ${tag} `]) {
    assert.equal(await conditional(match), 304, match);
  }
  for (const other of ['"other"', '"other", "more"', 'W/"other"']) {
    assert.equal(await conditional(other), 200, other);
  }
  const unchanged = await api.call('GET', LIST, { headers: { 'if-none-match': tag } });
  assert.equal(unchanged.headers.etag, tag);
  await api.createSnapshot(main.id, 'changes-the-tag');
  assert.equal(await conditional(tag), 200, 'a new snapshot is a new tag');
  const ready = await api.snapshotReady('changes-the-tag');
  const readyTag = await currentTag();
  await api.deleteSnapshot(ready.id);
  assert.equal(await conditional(readyTag), 200, 'a deletion is a new tag');
});

test('the body of a GET is ignored', async () => {
  assert.equal((await api.call('GET', LIST, { body: {} })).status, 200);
});

const BAD_NAMES = ['', '-a', '.a', '_a', 'a'.repeat(64), 'a b', 'a/b', '../a', 'é', 'a\n', 'a\0'];
for (const name of BAD_NAMES) {
  test(`the snapshot name ${JSON.stringify(name)} is refused`, async () => {
    const body = { instanceId: main.id, name };
    const refused = await api.refused(400, 'POST', '/v1/snapshots/create', { body });
    assert.match(refused.message, /name/);
  });
}

test('names of 1 and of 63 characters are taken; a taken one is a 409', async () => {
  for (const name of ['9', 'z'.repeat(63)]) {
    await api.createSnapshot(main.id, name);
    await api.snapshotReady(name);
    const body = { instanceId: main.id, name };
    const refused = await api.refused(409, 'POST', '/v1/snapshots/create', { body });
    assert.ok(refused.message.includes(name), refused.message);
  }
});

test('a name is free again after its snapshot was deleted', async () => {
  const ready = await api.snapshotReady('9');
  await api.deleteSnapshot(ready.id);
  assert.ok(!(await api.snapshots()).some((one) => one.id === ready.id), 'gone at once');
  await api.refused(404, 'DELETE', `/v1/snapshots/${ready.id}`);
  await api.createSnapshot(main.id, '9');
  assert.notEqual((await api.snapshotReady('9')).id, ready.id);
});

test('instanceId is a string, and both fields are needed', async () => {
  const wrong = [{ instanceId: 0, name: 'x' }, { name: 'x' }, { instanceId: null, name: 'x' }];
  for (const body of wrong) {
    const refused = await api.refused(400, 'POST', '/v1/snapshots/create', { body });
    assert.match(refused.message, /instanceId/);
  }
  const refused = await api.refused(400, 'POST', '/v1/snapshots/create', {
    body: { instanceId: main.id },
  });
  assert.match(refused.message, /name/);
});

test('a disk smaller than the minimum is a 400 that names the minimum', async () => {
  const { minimumDiskSizeGb } = await api.snapshotReady('before-upgrade');
  const body = {
    ...SMALL_INSTANCE,
    template: 'before-upgrade',
    disk_size_gb: minimumDiskSizeGb - 1,
  };
  const refused = await api.refused(400, 'POST', '/v1/instances/create', { body });
  assert.match(refused.message, new RegExp(`\\b${minimumDiskSizeGb}\\b`));
});

test('an unknown template is a 400 or 404 that says so', async () => {
  const body = { ...SMALL_INSTANCE, template: 'no-such-template' };
  const answer = await api.call('POST', '/v1/instances/create', { body });
  assert.ok(answer.status === 400 || answer.status === 404, answer.text);
  assert.match(answer.text, /no-such-template/);
});

const IDENTITY = 'cat /etc/machine-id';
const CHECKSUM = 'cd ~ && sha256sum data/random .ssh/authorized_keys && stat -c %a data/random';

test('restore: the source is deleted, the copy has its disk and its keys', { skip }, async () => {
  const generated = saveKey(keyFolder, (await api.addKey(main.id)).key);
  const make = 'mkdir data; head -c 3000000 /dev/urandom > data/random; chmod 640 data/random';
  await sshWell(main.login, make);
  const [checksum, identity] = [
    await sshWell(main.login, CHECKSUM),
    await sshWell(main.login, IDENTITY),
  ];
  const keysBefore = await hostKeys(main.login);
  await api.createSnapshot(main.id, 'to-restore');
  const ready = await api.snapshotReady('to-restore');
  await api.deleteInstance(main.id);
  await api.gone(main.uuid);
  assert.ok(
    (await api.snapshots()).some((one) => one.id === ready.id),
    'outlives its source',
  );

  const pair = await makeKeyPair(keyFolder);
  const wanted = { ...SMALL_INSTANCE, template: 'to-restore', public_key: pair.publicKey };
  const created = await api.createInstance(wanted);
  const copy = await api.reach(created.uuid, 'RUNNING', RESTORE_WAY_UP);
  assert.equal(copy.restoringTime, undefined, 'only while it applies');
  const login = loginTo(copy, main.keyFile);
  for (const keyFile of [main.keyFile, generated, pair.keyFile]) {
    assert.equal(await loginProblem({ ...login, keyFile }), undefined);
  }
  assert.equal(
    (await sshWell(login, 'cat data/random | sha256sum')).split(' ')[0],
    checksum.split(' ')[0],
  );
  const keysAfter = await hostKeys(login);
  assert.ok(keysBefore.length > 0 && keysAfter.length > 0);
  for (const key of keysAfter) assert.ok(!keysBefore.includes(key), 'host keys of its own');
  const newIdentity = await sshWell(login, IDENTITY);
  assert.match(newIdentity, /^[0-9a-f]{32}\n$/);
  assert.notEqual(newIdentity, identity, 'a machine id of its own');
});

test('a snapshot of a stopped instance is a 409 that names its status', async () => {
  const machine = await house.machine();
  await api.stopInstance(machine.id);
  await api.reach(machine.id, 'STOPPED', ['STOPPING', 'RUNNING']);
  const body = { instanceId: machine.id, name: 'of-a-stopped-one' };
  const refused = await api.refused(409, 'POST', '/v1/snapshots/create', { body });
  assert.match(refused.message, /STOPPED/);
});
