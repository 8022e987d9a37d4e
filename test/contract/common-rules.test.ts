/**
 * The contract's "Common rules", sentence by sentence, over all of its operations. Elsewhere: each answer's error body,
 * X-Request-Id and the 25 s are checked on every answer by support/http.ts; secrets in logs by e2e/secrets.test.ts;
 * what the HTTP parser refuses by e2e/http-refusals.test.ts; lost connections by e2e/response-cut.test.ts.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { checkAddedKey } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { ask } from '../support/http.ts';
import { makeKeyPair } from '../support/keys.ts';
import { eventually } from '../support/waiting.ts';
import {
  type ContractOperation,
  mutations,
  nameOf,
  OPERATIONS,
  pathOf,
  reads,
  wantedInstance,
  withToken,
} from './operations.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;
const main = await house.machine();
await api.createSnapshot(main.id, 'kept');
await api.snapshotReady('kept');
const url = service.baseUrl;
const json = { 'content-type': 'application/json' };
const bearer = { authorization: `Bearer ${api.token}` };

/** Where a table can go without doing harm: a running instance, or one that does not exist. */
const steadyPath = (operation: ContractOperation): string =>
  pathOf(operation, operation.path.endsWith('/delete') ? '987654' : main.id);

for (const operation of OPERATIONS) {
  const name = nameOf(operation);
  const path = steadyPath(operation);

  test(`${name}: a token is wanted on every operation except the public ones`, async () => {
    const { method } = operation;
    const answer = await ask(url, { method, path });
    if (operation.access === 'token') assert.equal(answer.status, 401, answer.text);
    else assert.ok(answer.status < 400, answer.text);
  });
}

for (const operation of withToken) {
  test(`${nameOf(operation)}: the scheme word in any case; anything else is a 401`, async () => {
    const { method } = operation;
    const asked = async (authorization: string): Promise<number> => {
      const headers = { authorization };
      return (await ask(url, { method, path: pathOf(operation, '987654'), headers })).status;
    };
    for (const scheme of ['bearer', 'BEARER', 'BeArEr']) {
      assert.notEqual(await asked(`${scheme} ${api.token}`), 401, scheme);
    }
    for (const wrong of [`Basic ${api.token}`, `Token ${api.token}`, api.token, 'Bearer', '']) {
      assert.equal(await asked(wrong), 401);
    }
  });
}

for (const operation of reads.filter((one) => one.path.startsWith('/v1/'))) {
  test(`${nameOf(operation)}: the body of a GET is ignored, and the answer is typed JSON`, async () => {
    const path = pathOf(operation, main.id);
    const plain = await ask(url, { method: 'GET', path, headers: bearer });
    assert.equal(plain.status, 200, plain.text);
    assert.equal(plain.headers['content-type'], 'application/json; charset=utf-8');
    for (const [body, type] of [
      ['{}', 'application/json'],
      ['', 'application/json'],
      ['{"limit":"x"', 'application/json'],
      ['<x/>', 'application/xml'],
    ] as const) {
      const headers = { ...bearer, 'content-type': type };
      const answer = await ask(url, { method: 'GET', path, headers, body });
      assert.deepEqual([answer.status, answer.text], [plain.status, plain.text], body);
    }
  });
}

/** The message of a generated key names another fingerprint each time. */
const withoutSecrets = (text: string): string =>
  text
    .replace(/-----BEGIN.*END OPENSSH PRIVATE KEY-----\\n/, '<key>')
    .replace(/SHA256:\S{43}/, '<f>');

for (const operation of mutations.filter((one) => one.body !== 'required')) {
  test(`${nameOf(operation)}: no body, an empty one with Content-Type, and {} mean the same`, async () => {
    const path = steadyPath(operation);
    const asked = async (options: object): Promise<string> => {
      await eventually('a steady instance', 20_000, async () =>
        ['RUNNING', 'STOPPED'].includes((await api.instance(main.id)).status) ? true : undefined,
      );
      const answer = await api.call(operation.method, path, options);
      assert.ok([200, 404].includes(answer.status), answer.text);
      // Whether it is being stopped or is so already is no matter of the body.
      const isState = /\/(start|stop)$/.test(path);
      return `${answer.status} ${isState ? '' : withoutSecrets(answer.text)}`;
    };
    const first = await asked({});
    const nulls = Object.fromEntries(
      Object.keys(operation.wrong ?? {}).map((name) => [name, null]),
    );
    for (const options of [
      { rawBody: '', headers: json },
      { body: {} },
      { body: null },
      { body: nulls },
      { body: { unknown: 1, colour: ['red'] } },
      { rawBody: '{"__proto__":{"verify":7},"constructor":{"prototype":{}}}', headers: json },
    ]) {
      assert.equal(await asked(options), first);
    }
    await api.startInstance(main.id).catch(() => undefined);
    await api.reach(main.id, 'RUNNING', ['STARTING', 'STOPPING', 'STOPPED']);
  });
}

for (const operation of mutations.filter((one) => one.body === 'required')) {
  test(`${nameOf(operation)}: a body is needed, and a missing field is a 400 naming it`, async () => {
    for (const options of [{}, { rawBody: '', headers: json }, { body: {} }]) {
      await api.refused(400, operation.method, operation.path, options);
    }
    const example = operation.example ?? {};
    for (const field of Object.keys(example)) {
      for (const body of [
        { ...example, [field]: undefined },
        { ...example, [field]: null },
      ]) {
        const refused = await api.refused(400, operation.method, operation.path, { body });
        assert.ok(refused.message.includes(field), `null counts as absent: ${refused.message}`);
      }
    }
  });
}

for (const operation of mutations) {
  for (const [field, values] of Object.entries(operation.wrong ?? {})) {
    test(`${nameOf(operation)}: a wrong type for ${field} is a 400 naming the field`, async () => {
      for (const value of values) {
        const body = { ...operation.example, [field]: value };
        const path = pathOf(operation, main.id);
        const refused = await api.refused(400, operation.method, path, { body });
        assert.ok(refused.message.includes(field), `${JSON.stringify(value)}: ${refused.message}`);
      }
    });
  }
}

test('unknown fields in a request body are ignored, next to known ones', async () => {
  const unknown = { unknown: { deep: [null] }, cpuCores: 'x', expires: null };
  await api.expect(200, () => true, 'POST', '/v1/token/create', {
    body: { name: 'with more', ...unknown },
  });
  const { publicKey } = await makeKeyPair(house.keyFolder);
  const body = { public_key: publicKey, verify: null, ...unknown };
  checkAddedKey(await api.call('POST', `/v1/instances/${main.id}/add_key`, { body }));
  const wanted = { ...wantedInstance, template: 'no-such', public_key: null, ...unknown };
  const refused = await api.refused(400, 'POST', '/v1/instances/create', { body: wanted });
  assert.match(refused.message, /template/, 'only the template is wrong here');
});

const routes: readonly (readonly [string, string, number])[] = [
  ['GET', '/v1/auth/validate', 200],
  ['GET', '/v1/snapshots/list', 200],
  ['POST', '/v1/instances/987654/add_key', 404],
  ['GET', '/no/such/path', 404],
  ['PUT', '/v1/tokens', 405],
  ['GET', '/healthz', 200],
];
for (const [method, path, status] of routes) {
  test(`X-Request-Id on ${method} ${path}: the caller's when it sent a sane one`, async () => {
    for (const sane of ['a', 'trace-1234.5:x', '9'.repeat(64)]) {
      const answer = await api.call(method, path, { headers: { 'x-request-id': sane } });
      assert.deepEqual([answer.status, answer.headers['x-request-id']], [status, sane]);
    }
    for (const other of ['', 'a b', 'x'.repeat(5000), '<script>', 'a"b', '\u00e9']) {
      const answer = await api.call(method, path, { headers: { 'x-request-id': other } });
      assert.equal(answer.status, status);
      assert.notEqual(answer.headers['x-request-id'], other);
    }
    const [one, two] = [await api.call(method, path), await api.call(method, path)];
    assert.notEqual(one.headers['x-request-id'], two.headers['x-request-id'], 'its own for each');
  });
}

test('logs carry the same id', async () => {
  const id = `contract-${process.pid}-seen`;
  await api.call('POST', '/v1/instances/987654/stop', { headers: { 'x-request-id': id } });
  await eventually('the id in the log', 5000, () =>
    readFileSync(service.logFile, 'utf8').includes(id) ? true : undefined,
  );
});

test('a repeated POST does no harm: the same key, start, stop of a stopped one', async () => {
  const machine = await house.machine();
  const body = { public_key: machine.publicKey };
  const before = await api.keys(machine.id);
  for (let count = 0; count < 3; count += 1) {
    checkAddedKey(await api.call('POST', `/v1/instances/${machine.id}/add_key`, { body }));
    await api.startInstance(machine.id);
  }
  assert.deepEqual(await api.keys(machine.id), before);
  for (let count = 0; count < 3; count += 1) await api.stopInstance(machine.id);
  await api.reach(machine.id, 'STOPPED', ['STOPPING']);
  await api.deleteInstance(machine.id);
  const again = await api.call('POST', `/v1/instances/${machine.id}/delete`);
  assert.ok([200, 404].includes(again.status), again.text);
});

test('a snapshot asked for twice is there once', async () => {
  await api.createSnapshot(main.id, 'once');
  const body = { instanceId: main.id, name: 'once' };
  await api.refused(409, 'POST', '/v1/snapshots/create', { body });
  await api.snapshotReady('once');
  assert.equal((await api.snapshots()).filter((one) => one.name === 'once').length, 1);
});
