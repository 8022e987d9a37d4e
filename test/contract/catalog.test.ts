/** The contract's "Account", "Catalog (public)" and "Service", where replay.test.ts says nothing. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Api } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { ask, exchange } from '../support/http.ts';
import { fingerprintOf, makeKeyPair } from '../support/keys.ts';
import { addedSavedKey, availabilities, pricing, savedKeys, specs, templates } from './answers.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;
const open = { headers: { authorization: '' } };

test('specs: keys are <gpu>_x<count>_<mode>, ranges and choices are sound', async () => {
  const { specs: all } = await api.expect(200, specs, 'GET', '/v1/specs', open);
  assert.ok(all.has('cpu_x1_production') && all.has('cpu_x1_prototyping'));
  for (const [key, spec] of all) {
    assert.match(key, new RegExp(`^[a-z0-9-]+_x${spec.gpuCount}_${spec.mode}$`));
    for (const { min, max } of [spec.storageGB, spec.ephemeralStorageGB]) {
      assert.ok(min >= 0 && min <= max, key);
    }
    assert.ok(spec.vcpuOptions.length > 0 && spec.vcpuOptions.every((count) => count > 0), key);
    assert.ok(spec.ramPerVCPUGiB > 0 && spec.vramGB >= 0, key);
  }
});

test('status, pricing: the same spec keys; pricing has the three extras', async () => {
  const { specs: all } = await api.expect(200, specs, 'GET', '/v1/specs', open);
  const keys = [...all.keys()].sort();
  const state = await api.expect(200, availabilities, 'GET', '/v1/status', open);
  assert.deepEqual([...state.specs.keys()].sort(), keys);
  for (const key of keys) {
    const [, gpu = '', mode = ''] = /^(.+)_x\d+_(.+)$/.exec(key) ?? [];
    assert.ok(state.gpu_type.get(gpu)?.has(mode), `${gpu} ${mode}`);
  }
  const prices = (await api.expect(200, pricing, 'GET', '/v1/pricing', open)).pricing;
  const extras = ['additional_vcpus', 'disk_gb', 'ephemeral_disk_gb'];
  assert.deepEqual([...prices.keys()].sort(), [...keys, ...extras].sort());
  for (const price of prices.values()) assert.ok(price >= 0);
});

test('thunder-templates: one default, and every default can be created', async () => {
  const all = await api.expect(200, templates, 'GET', '/v1/thunder-templates', open);
  assert.equal([...all.values()].filter((one) => one.default).length, 1);
  const { specs: known } = await api.expect(200, specs, 'GET', '/v1/specs', open);
  for (const [key, { defaultSpecs }] of all) {
    assert.equal(defaultSpecs.template, key);
    const fitting = [...known].filter(([name]) =>
      name.startsWith(`${defaultSpecs.gpu_type.toLowerCase()}_x${defaultSpecs.num_gpus}_`),
    );
    assert.ok(
      fitting.some(([, spec]) => spec.vcpuOptions.includes(defaultSpecs.cores)),
      key,
    );
  }
});

test('the catalog is public: a wrong token does not matter', async () => {
  for (const path of ['/v1/specs', '/v1/status', '/v1/pricing', '/v1/thunder-templates']) {
    for (const headers of [{}, { authorization: 'Bearer nonsense' }]) {
      assert.equal((await ask(service.baseUrl, { method: 'GET', path, headers })).status, 200);
    }
  }
});

test('keys/add: the key as given, its fingerprint; the same blob again is a 409; a bad one a 400', async () => {
  const { publicKey } = await makeKeyPair(house.keyFolder, 'with words é');
  const body = { name: 'desk', public_key: publicKey };
  const before = Math.floor(Date.now() / 1000);
  const { key } = await api.expect(200, addedSavedKey, 'POST', '/v1/keys/add', { body });
  assert.deepEqual([key.name, key.public_key], ['desk', publicKey]);
  assert.equal(key.fingerprint, await fingerprintOf(publicKey));
  assert.ok(key.created_at >= before && key.created_at <= Date.now() / 1000, 'seconds');
  const again = { name: 'other', public_key: publicKey.split(' ').slice(0, 2).join(' ') };
  assert.match((await api.refused(409, 'POST', '/v1/keys/add', { body: again })).message, /desk/);
  for (const wrong of ['', 'nonsense', `command="x" ${publicKey}`]) {
    const refused = { name: 'bad', public_key: wrong };
    await api.refused(400, 'POST', '/v1/keys/add', { body: refused });
  }
  assert.deepEqual(await api.expect(200, savedKeys, 'GET', '/v1/keys/list'), [key]);
  assert.equal((await api.call('DELETE', `/v1/keys/${key.id}`)).status, 204);
  await api.refused(404, 'DELETE', `/v1/keys/${key.id}`);
});

test('token/delete is "effective at once on this node"', async () => {
  const token = await api.createToken('short-lived');
  const client = new Api(() => service.baseUrl, token);
  // Twice: the second is answered from what the service remembers of the token.
  for (let count = 0; count < 2; count += 1) assert.equal((await client.validate()).valid, true);
  await client.snapshots();
  await api.deleteToken('short-lived');
  for (const path of ['/v1/auth/validate', '/v1/snapshots/list']) {
    assert.equal((await client.refused(401, 'GET', path)).error, 'unauthorized');
  }
});

test('the token is "shown once": the list has its prefix, and never the rest', async () => {
  const token = await api.createToken('shown-once');
  const { text } = await api.call('GET', '/v1/tokens');
  assert.ok(!text.includes(token));
  const found = (await api.tokens()).find((one) => one.name === 'shown-once');
  assert.ok(found !== undefined && token.startsWith(found.prefix) && found.prefix.length < 20);
  assert.equal(found.last_used_at, undefined, 'absent while it was never used');
});

test('GET /openapi.json is OpenAPI 3.1; /docs, /healthz, /readyz answer', async () => {
  const { text } = await ask(service.baseUrl, { method: 'GET', path: '/openapi.json' });
  assert.match((JSON.parse(text) as { openapi: string }).openapi, /^3\.1\./);
  for (const path of ['/docs', '/healthz', '/readyz']) {
    assert.ok((await ask(service.baseUrl, { method: 'GET', path })).status < 400, path);
  }
});

test('GET /metrics is "never open by accident"', async () => {
  const answer = await exchange(service.baseUrl, { method: 'GET', path: '/metrics' });
  assert.ok([401, 404].includes(answer.status), `${answer.status}`);
  assert.doesNotMatch(answer.text, /^# HELP/m);
});
