/**
 * What a strict command line and a Terraform provider do, request by request and in their order, against a served
 * Berth with real instances. Each step is a test; later steps stand on earlier ones.
 */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { checkAddedKey, SMALL_INSTANCE } from '../support/client.ts';
import {
  createdInstance,
  type Instance,
  instance,
  instanceMap,
  message,
  newToken,
  snapshots,
  tokens,
  validated,
} from '../support/contract.ts';
import { loginTo, openHouse, RESTORE_WAY_UP, WAY_UP } from '../support/house.ts';
import { fingerprintOf, makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import { isFree } from '../support/ports.ts';
import { loginProblem } from '../support/ssh.ts';
import { eventually } from '../support/waiting.ts';
import {
  addedSavedKey,
  availabilities,
  modified,
  pricing,
  savedKeys,
  specs,
  templates,
} from './answers.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, skipLogins, keyFolder } = house;
const own = await makeKeyPair(keyFolder, 'terraform@runner');
const createdFirst = { id: '', uuid: '' };
let restored: Instance | undefined;

const list = (): Promise<Map<string, Instance>> =>
  api.expect(200, instanceMap, 'GET', '/v1/instances/list?update_ips=true', { body: {} });

const listed = async (id: string): Promise<Instance> => {
  const found = (await list()).get(id);
  assert.ok(found !== undefined, `instance ${id} is in the map`);
  return found;
};

/** As the provider waits: by the list, and STOPPED or UNKNOWN on the way is a failure. */
const waitUntilRunning = (id: string, wayUp: readonly string[]): Promise<Instance> =>
  eventually(`instance ${id} RUNNING`, 20_000, async () => {
    const found = await listed(id);
    if (found.status === 'RUNNING') return found;
    assert.ok(wayUp.includes(found.status), `${found.status} on the way up: ${found.failure}`);
    return undefined;
  });

test('log in: GET /v1/auth/validate says whose the token is', async () => {
  const me = await api.expect(200, validated, 'GET', '/v1/auth/validate');
  assert.deepEqual(me, { valid: true, email: 'acme@example.com', org_name: 'acme' });
});

test('plan: specs, status, pricing and templates are read without a token', async () => {
  const open = { headers: { authorization: '' } };
  const all = await api.expect(200, specs, 'GET', '/v1/specs', open);
  const state = await api.expect(200, availabilities, 'GET', '/v1/status', open);
  const price = await api.expect(200, pricing, 'GET', '/v1/pricing', open);
  const known = await api.expect(200, templates, 'GET', '/v1/thunder-templates', open);
  for (const key of ['cpu_x1_production', 'cpu_x1_prototyping']) {
    assert.equal(all.specs.get(key)?.gpuCount, 1);
    assert.equal(state.specs.get(key), 'available');
    assert.ok(price.pricing.has(key));
  }
  assert.ok(known.has(SMALL_INSTANCE.template));
});

test('an organization without instances has an empty object, not an array', async () => {
  const answer = await api.call('GET', '/v1/instances/list');
  assert.equal(answer.text, '{}');
});

test('create with num_gpus 1 and a GPU type in capitals', async () => {
  const body = { ...SMALL_INSTANCE, gpu_type: 'CPU', num_gpus: 1, public_key: own.publicKey };
  const made = await api.expect(201, createdInstance, 'POST', '/v1/instances/create', { body });
  assert.equal(made.key, '', 'no private key when a public key was given');
  assert.equal(made.identifier, 0);
  Object.assign(createdFirst, { id: String(made.identifier), uuid: made.uuid });
});

test('poll the list to RUNNING; STOPPED and UNKNOWN never show on the way', async () => {
  const running = await waitUntilRunning(createdFirst.id, WAY_UP);
  assert.equal(running.uuid, createdFirst.uuid);
  assert.equal(running.gpuType, 'CPU', 'echoed as written');
  assert.ok(running.ip !== undefined && running.port !== undefined, 'set by then');
  assert.deepEqual([running.cpuCores, running.numGpus, running.storage], ['1', '1', 10]);
  assert.deepEqual(running.sshPublicKeys, [own.publicKey]);
  assert.equal(running.provisioningTime, undefined, 'only while it applies');
});

test('the key of the creation logs in', { skip: skipLogins }, async () => {
  const login = loginTo(await listed(createdFirst.id), own.keyFile);
  assert.equal(await loginProblem(login), undefined);
});

test("add a key by the map's number, and find its exact text in sshPublicKeys", async () => {
  const pair = await makeKeyPair(keyFolder, 'second key, with words');
  const body = { public_key: pair.publicKey };
  const answer = await api.call('POST', `/v1/instances/${createdFirst.id}/add_key`, { body });
  const added = checkAddedKey(answer);
  assert.deepEqual([added.uuid, added.key], [createdFirst.uuid, '']);
  assert.ok(added.message.includes(await fingerprintOf(pair.publicKey)));
  const found = await listed(createdFirst.id);
  assert.deepEqual(found.sshPublicKeys, [own.publicKey, pair.publicKey], 'oldest first');
  if (skipLogins === false)
    assert.equal(await loginProblem(loginTo(found, pair.keyFile)), undefined);
});

const json = { 'content-type': 'application/json' };
const emptyBodies = [
  ['without a body', {}],
  ['with an empty body that has a Content-Type', { rawBody: '', headers: json }],
  ['with {}', { body: {} }],
] as const;
for (const [name, options] of emptyBodies) {
  test(`add_key ${name} returns a private key that logs in as it is`, async () => {
    const answer = await api.call('POST', `/v1/instances/${createdFirst.uuid}/add_key`, options);
    const added = checkAddedKey(answer);
    const keyFile = saveKey(keyFolder, added.key);
    const half = await publicHalf(keyFile);
    assert.match(half, /^ssh-ed25519 /);
    const found = await listed(createdFirst.id);
    assert.equal(found.sshPublicKeys.at(-1)?.split(' ')[1], half.split(' ')[1]);
    if (skipLogins === false) assert.equal(await loginProblem(loginTo(found, keyFile)), undefined);
  });
}

/** A port that nobody uses now, far from those the tests' services claim. */
async function freePort(): Promise<number> {
  for (let port = 33_100; ; port += 1) if (await isFree(port)) return port;
}

test('ports are added through modify and removed through PATCH ports, and the other way', async () => {
  const port = await freePort();
  const { id } = createdFirst;
  const change = (method: string, path: string, body: object) =>
    api.expect(200, modified, method, `/v1/instances/${id}/${path}`, { body });
  for (const [add, remove] of [
    [
      ['POST', 'modify'],
      ['PATCH', 'ports'],
    ],
    [
      ['PATCH', 'ports'],
      ['POST', 'modify'],
    ],
  ] as const) {
    const added = await change(add[0], add[1], { add_ports: [port] });
    assert.deepEqual([added.identifier, added.http_ports], [id, [port]]);
    assert.equal(added.instance_name, (await listed(id)).name);
    await waitUntilRunning(id, ['MODIFYING', 'STARTING']);
    assert.deepEqual((await listed(id)).httpPorts, [port]);
    const removed = await change(remove[0], remove[1], { remove_ports: [port] });
    assert.deepEqual(removed.http_ports, []);
    await waitUntilRunning(id, ['MODIFYING', 'STARTING']);
    assert.deepEqual((await listed(id)).httpPorts, []);
  }
});

test('modify grows the disk, and the instance is RUNNING with it again', async () => {
  const body = { disk_size_gb: 12 };
  const path = `/v1/instances/${createdFirst.id}/modify`;
  const answer = await api.expect(200, modified, 'POST', path, { body });
  assert.equal(answer.identifier, createdFirst.id);
  const grown = await waitUntilRunning(createdFirst.id, ['MODIFYING', 'STARTING']);
  assert.equal(grown.storage, 12);
});

test('snapshot by UUID, poll by name to READY', async () => {
  const body = { instanceId: createdFirst.uuid, name: 'before-upgrade' };
  const before = Math.floor(Date.now() / 1000);
  await api.expect(202, message, 'POST', '/v1/snapshots/create', { body });
  const ready = await eventually('READY', 20_000, async () => {
    const all = await api.expect(200, snapshots, 'GET', '/v1/snapshots/list', { body: {} });
    const found = all.find((one) => one.name === 'before-upgrade');
    assert.ok(found !== undefined, 'listed from the moment it is accepted');
    assert.notEqual(found.status, 'FAILED');
    return found.status === 'READY' ? found : undefined;
  });
  assert.ok(ready.createdAt >= before && ready.createdAt <= Date.now() / 1000, 'seconds');
});

test('restore by name: RESTORING, STARTING, RUNNING, with the keys of the disk', async () => {
  const body = { ...SMALL_INSTANCE, disk_size_gb: 20, template: 'before-upgrade' };
  const made = await api.expect(201, createdInstance, 'POST', '/v1/instances/create', { body });
  const running = await waitUntilRunning(String(made.identifier), RESTORE_WAY_UP);
  assert.equal(running.template, 'before-upgrade');
  restored = running;
  if (skipLogins !== false) return;
  const generated = saveKey(keyFolder, made.key);
  for (const keyFile of [own.keyFile, generated]) {
    assert.equal(await loginProblem(loginTo(running, keyFile)), undefined);
  }
});

test('delete the snapshot: 204 without a body, and it is not listed any more', async () => {
  const [found] = await api.snapshots();
  const answer = await api.call('DELETE', `/v1/snapshots/${found?.id}`);
  assert.deepEqual([answer.status, answer.text], [204, '']);
  assert.equal((await api.call('GET', '/v1/snapshots/list')).text, '[]');
});

test('the address book: keys/add, keys/list, keys/{id}', async () => {
  const pair = await makeKeyPair(keyFolder, 'kept in the book');
  const body = { name: 'laptop', public_key: pair.publicKey };
  const added = await api.expect(200, addedSavedKey, 'POST', '/v1/keys/add', { body });
  assert.equal(added.key.fingerprint, await fingerprintOf(pair.publicKey));
  assert.deepEqual([added.key.name, added.key.public_key], ['laptop', pair.publicKey]);
  assert.equal(added.key.key_type, 'ssh-ed25519');
  assert.deepEqual(await api.expect(200, savedKeys, 'GET', '/v1/keys/list'), [added.key]);
  const answer = await api.call('DELETE', `/v1/keys/${added.key.id}`);
  assert.deepEqual([answer.status, answer.text], [204, '']);
  assert.equal((await api.call('GET', '/v1/keys/list')).text, '[]');
});

test('tokens: create, list, delete', async () => {
  const body = { name: 'terraform' };
  const { token } = await api.expect(200, newToken, 'POST', '/v1/token/create', { body });
  const all = await api.expect(200, tokens, 'GET', '/v1/tokens');
  const made = all.find((one) => one.name === 'terraform');
  assert.ok(made !== undefined && token.startsWith(made.prefix));
  await api.expect(200, message, 'DELETE', '/v1/token/delete', { body });
  const headers = { authorization: `Bearer ${token}` };
  assert.equal((await api.call('GET', '/v1/auth/validate', { headers })).status, 401);
});

test('destroy: POST delete, then the map is empty and a look at one is a 404', async () => {
  for (const id of [createdFirst.id, restored?.id ?? '']) {
    await api.expect(200, instance, 'GET', `/v1/instances/${id}`);
    await api.expect(200, message, 'POST', `/v1/instances/${id}/delete`, { body: {} });
    await api.gone(id);
  }
  assert.equal((await list()).size, 0);
});
