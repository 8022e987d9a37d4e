/** What the list of keys says of lines that somebody wrote by hand, and where a key is found. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { readKeyFile, writeKeyFile } from '../support/key-file.ts';
import { fingerprintOf, makeKeyPair } from '../support/keys.ts';
import { isDenied, type Login, loginProblem, sshWell } from '../support/ssh.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, skipLogins: skip, keyFolder } = house;

interface Item {
  readonly fingerprint: string;
  readonly presence: string;
  readonly access?: string;
  readonly source: string;
  readonly added_at?: string;
  readonly expires_at?: string;
}

async function items(id: string): Promise<Item[]> {
  const answer = await api.call('GET', `/v1/instances/${id}/keys?presence=true`);
  assert.equal(answer.status, 200, answer.text);
  return JSON.parse(answer.text) as Item[];
}

interface Place {
  readonly uuid: string;
  readonly presence: string;
  readonly access?: string;
}

async function places(fingerprint: string): Promise<string[]> {
  const answer = await api.call('GET', `/v1/keys/${encodeURIComponent(fingerprint)}/instances`);
  assert.equal(answer.status, 200, answer.text);
  const found = JSON.parse(answer.text) as Place[];
  return found.map(({ uuid, presence, access }) => `${uuid} ${presence} ${access}`);
}

async function append(login: Login, line: string): Promise<void> {
  const file = await readKeyFile(login);
  await writeKeyFile(login, Buffer.concat([file, Buffer.from(`${line}\n`)]));
}

test('each line of the file is told as sshd takes it, and sshd agrees', { skip }, async () => {
  const machine = await house.machine();
  const make = () => makeKeyPair(keyFolder, 'by hand');
  const [plain, limited, expired, signer, ignored, added] = [
    ...[await make(), await make(), await make(), await make(), await make(), await make()],
  ];
  assert.ok(plain && limited && expired && signer && ignored && added);
  await api.addKey(machine.id, { public_key: added.publicKey });
  await append(machine.login, plain.publicKey);
  await append(machine.login, `command="echo limited" ${limited.publicKey}`);
  await append(machine.login, `expiry-time="20200101000000Z" ${expired.publicKey}`);
  await append(machine.login, `cert-authority ${signer.publicKey}`);
  await append(machine.login, `no-such-option ${ignored.publicKey}`);
  const told = (await items(machine.id)).map(
    ({ presence, access, source }) => `${presence} ${access} ${source}`,
  );
  assert.deepEqual(told, [
    'present full create',
    'present full supplied',
    'unknown full file',
    'unknown limited file',
    'unknown expired file',
    'unknown signer file',
    'unknown ignored file',
  ]);
  const login = (keyFile: string) => ({ ...machine.login, keyFile });
  assert.equal(await loginProblem(login(plain.keyFile)), undefined);
  assert.equal(await sshWell(login(limited.keyFile), 'true'), 'limited\n');
  for (const { keyFile } of [expired, signer, ignored]) assert.ok(await isDenied(login(keyFile)));
  const listed = (await api.keys(machine.id)).map((key) => key.public_key);
  assert.equal(listed.length, 6, 'without presence=true no cert-authority line');
  assert.ok(!listed.some((key) => signer.publicKey.startsWith(key)));
});

test('a key that its user took out is missing; removing it forgets it', { skip }, async () => {
  const machine = await house.machine();
  const pair = await makeKeyPair(keyFolder);
  const fingerprint = await fingerprintOf(pair.publicKey);
  const before = await readKeyFile(machine.login);
  await api.addKey(machine.id, { public_key: pair.publicKey });
  await writeKeyFile(machine.login, before);
  const missing = (await items(machine.id)).find((item) => item.fingerprint === fingerprint);
  assert.deepEqual([missing?.presence, missing?.source], ['missing', 'supplied']);
  assert.match(missing?.added_at ?? '', /^\d{4}-/);
  assert.deepEqual(await places(fingerprint), []);
  const path = `/v1/instances/${machine.id}/keys/${encodeURIComponent(fingerprint)}`;
  assert.equal((await api.call('DELETE', path)).status, 204);
  assert.ok(!(await items(machine.id)).some((item) => item.fingerprint === fingerprint));
});

test('a key is found where it was added by hand, came with a restore, or signs', {
  skip,
}, async () => {
  const [one, two, three] = [await house.machine(), await house.machine(), await house.machine()];
  const pair = await makeKeyPair(keyFolder);
  const fingerprint = await fingerprintOf(pair.publicKey);
  await api.addKey(one.id, { public_key: pair.publicKey });
  await append(two.login, pair.publicKey);
  await append(three.login, `cert-authority ${pair.publicKey}`);
  await api.createSnapshot(two.id, 'with-the-key');
  await api.snapshotReady('with-the-key');
  const copy = await house.machine({ template: 'with-the-key' });
  assert.deepEqual(await places(fingerprint), [
    `${one.uuid} present full`,
    `${two.uuid} unknown full`,
    `${three.uuid} unknown signer`,
    `${copy.uuid} unknown full`,
  ]);
  await api.stopInstance(two.id);
  await api.reach(two.id, 'STOPPED', ['STOPPING', 'RUNNING']);
  assert.ok((await places(fingerprint)).includes(`${two.uuid} unknown full`), 'stopped ones too');
});

test("another organization's instances are not looked at", { skip }, async () => {
  const other = await house.tenant('places-other');
  const machine = await house.machine({}, other);
  const fingerprint = await fingerprintOf(machine.publicKey);
  assert.deepEqual(await places(fingerprint), []);
});
