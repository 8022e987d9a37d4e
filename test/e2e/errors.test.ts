/** Every refusal of the common rules has the contract's error body, whatever raised it. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { ask, checkErrorBody, exchange } from '../support/http.ts';
import { allRoutes, fill, undocumentedRoutes } from '../support/routes.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;
const main = await house.machine();
const url = service.baseUrl;
const routes = await allRoutes(url);
const ids = { id: main.id, other: 'SHA256:x' };
const guarded = routes.filter((route) => !route.isPublic);
const ended = await api.createToken('deleted');
await api.deleteToken('deleted');

test('/openapi.json lists every operation of the contract', async () => {
  assert.deepEqual(await undocumentedRoutes(url), []);
});

const badCredentials: readonly (readonly [string, string | undefined])[] = [
  ['no header', undefined],
  ['an empty header', ''],
  ['the scheme alone', 'Bearer'],
  ['the scheme and a space', 'Bearer '],
  ['a token alone', api.token],
  ['another scheme', `Basic ${api.token}`],
  ['an unknown scheme', `Bear ${api.token}`],
  ['two tokens', `Bearer ${api.token} ${api.token}`],
  ['a comma list', `Bearer ${api.token}, Bearer ${api.token}`],
  ['a malformed token', 'Bearer %%%'],
  ['an unknown token', `Bearer berth_${'A'.repeat(Math.max(api.token.length - 6, 1))}`],
  ['a deleted token', `Bearer ${ended}`],
  ['a token in other case', `Bearer ${api.token.toUpperCase()}`],
  ['a token cut short', `Bearer ${api.token.slice(0, -1)}`],
  ['a token with more', `Bearer ${api.token}x`],
  ['a quoted token', `Bearer "${api.token}"`],
];

for (const route of guarded) {
  test(`${route.method} ${route.path} without a good token is a 401`, async () => {
    for (const [name, authorization] of badCredentials) {
      const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
      const question = { method: route.method, path: fill(route.path, ids), headers };
      const answer = await ask(url, question);
      assert.equal(answer.status, 401, `${name}: ${answer.text}`);
      assert.equal(checkErrorBody(401, answer.text).error, 'unauthorized');
    }
  });
}

test('public routes need no token, and a bad one does not matter', async () => {
  for (const route of routes.filter((one) => one.isPublic && !one.path.includes('{'))) {
    for (const headers of [{}, { authorization: 'Bearer nonsense' }]) {
      const answer = await ask(url, { method: route.method, path: route.path, headers });
      assert.ok(answer.status < 400, `${route.path}: ${answer.status} ${answer.text}`);
    }
  }
  for (const path of ['/healthz', '/readyz', '/openapi.json', '/docs']) {
    const answer = await ask(url, { method: 'GET', path });
    assert.ok(answer.status < 400, `${path}: ${answer.status}`);
  }
});

for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR']) {
  test(`the scheme word ${scheme} is accepted`, async () => {
    const headers = { authorization: `${scheme} ${api.token}` };
    const question = { method: 'GET', path: '/v1/auth/validate', headers };
    assert.equal((await ask(url, question)).status, 200);
  });
}

const withBody = guarded.filter((route) =>
  ['/add_key', '/create'].some((end) => route.path.endsWith(end)),
);
const jsonType = { 'content-type': 'application/json' };
const malformed = ['{', '{"a":', '{"name": }', 'null,', "{'a':1}", '\u0000', '{"a":1}x', '[', '"'];

for (const route of withBody) {
  const path = fill(route.path, ids);
  test(`${route.method} ${route.path}: malformed JSON is a 400`, async () => {
    for (const rawBody of malformed) {
      const refused = await api.refused(400, route.method, path, { rawBody, headers: jsonType });
      assert.match(refused.message, /JSON/, refused.message);
    }
    const invalidUtf8 = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]);
    const answer = await api.call(route.method, path, { rawBody: invalidUtf8, headers: jsonType });
    assert.ok(answer.status < 500, answer.text);
  });

  test(`${route.method} ${route.path}: a body of more than 64 KiB is a 413`, async () => {
    for (const size of [65_537, 70_000, 3_000_000]) {
      const rawBody = `{"padding":"${'x'.repeat(size - 14)}"}`;
      const answer = await api
        .call(route.method, path, { rawBody, headers: jsonType })
        .catch((error: Error) => error.message);
      if (typeof answer === 'string') assert.ok(size > 1_000_000, answer);
      else assert.equal(answer.status, 413, answer.text);
    }
  });

  test(`${route.method} ${route.path}: a body that is not JSON is a 415`, async () => {
    for (const type of ['text/plain', 'application/xml', 'multipart/form-data; boundary=x']) {
      const headers = { 'content-type': type };
      await api.refused(415, route.method, path, { rawBody: '{}', headers });
    }
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    await api.refused(415, route.method, path, { rawBody: 'a=b', headers: form });
  });
}

test('JSON content types with parameters and in any case are JSON', async () => {
  for (const type of [
    'application/json; charset=utf-8',
    'Application/JSON',
    'application/json;x=y',
  ]) {
    const path = `/v1/instances/${main.id}/add_key`;
    const answer = await api.call('POST', path, {
      rawBody: JSON.stringify({ public_key: main.publicKey }),
      headers: { 'content-type': type },
    });
    assert.equal(answer.status, 200, `${type}: ${answer.text}`);
  }
});

const wrongFields: readonly (readonly [string, readonly unknown[]])[] = [
  ['cpu_cores', ['1', 1.5, 0, -1, true, [1], {}, null, 1e300]],
  ['disk_size_gb', ['10', 10.5, 0, -1, false, [10], {}, null, 1e300]],
  ['gpu_type', [1, true, [], {}, null, 'no-such-gpu', '']],
  ['mode', [1, 'Prototyping', 'fast', '', null, {}]],
  ['num_gpus', ['1', 1.5, -1, null, {}, 99]],
  ['template', [0, '', null, {}, ['base'], 'x'.repeat(500), '../base', 'base\0']],
  ['public_key', [0, '', true, {}, 'nonsense']],
];
for (const [field, values] of wrongFields) {
  test(`create with a wrong ${field} is a 400 that names it, and makes nothing`, async () => {
    for (const value of values) {
      const body = { ...SMALL_INSTANCE, [field]: value };
      const refused = await api.refused(400, 'POST', '/v1/instances/create', { body });
      const names = refused.message.includes(field) || field === 'public_key';
      assert.ok(names, `${JSON.stringify(value)}: ${refused.message}`);
    }
    assert.equal((await api.instances()).size, 1);
  });

  test(`create without ${field}`, async () => {
    if (field === 'public_key') return;
    const body = Object.fromEntries(
      Object.entries(SMALL_INSTANCE).filter(([name]) => name !== field),
    );
    const refused = await api.refused(400, 'POST', '/v1/instances/create', { body });
    assert.ok(refused.message.includes(field), refused.message);
  });
}

test('unknown fields are ignored, __proto__ among them', async () => {
  const path = `/v1/instances/${main.id}/add_key`;
  const known = `"public_key":${JSON.stringify(main.publicKey)}`;
  for (const more of ['"x":1', '"__proto__":{"verify":7}', '"constructor":{"prototype":{}}']) {
    const options = { rawBody: `{${known},${more}}`, headers: jsonType };
    const answer = await api.call('POST', path, options);
    assert.equal(answer.status, 200, `${more}: ${answer.text}`);
  }
});

test('an instance id that is none is a 404', async () => {
  const ids = [
    'x',
    '-1',
    '1e0',
    '00',
    '0x0',
    '1.0',
    '99999999999999999999',
    '%20',
    '0%00',
    '%2e%2e',
  ];
  for (const id of [...ids, main.uuid.toUpperCase().replace(/.$/, 'Z'), "0'--", '*', 'null']) {
    const answer = await api.call('GET', `/v1/instances/${id}`);
    assert.equal(answer.status, 404, `${id}: ${answer.text}`);
  }
});

test('X-Request-Id: a sane one of the caller comes back, any other does not', async () => {
  const sent = async (id: string): Promise<unknown> => {
    const headers = { 'x-request-id': id };
    const answer = await ask(url, { method: 'GET', path: '/healthz', headers });
    return answer.headers['x-request-id'];
  };
  assert.equal(await sent('build-42.a_b'), 'build-42.a_b');
  for (const odd of ['x'.repeat(5000), 'a b<script>', '"; drop', '']) {
    assert.notEqual(await sent(odd), odd);
  }
});

test('a HEAD answer has no body, and OPTIONS is no 5xx', async () => {
  for (const route of routes.filter((one) => one.method === 'GET')) {
    for (const method of ['HEAD', 'OPTIONS']) {
      const answer = await exchange(url, {
        method,
        path: fill(route.path, ids),
        headers: { authorization: `Bearer ${api.token}` },
      });
      assert.ok(answer.status < 500, `${method} ${route.path}: ${answer.status}`);
      if (method === 'HEAD') assert.equal(answer.text, '');
    }
  }
});
