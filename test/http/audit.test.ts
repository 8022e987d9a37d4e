/** Every operation that changes something leaves a line in the audit log, also when it is refused. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventuallyPasses } from '../support/waiting.ts';
import { type Served, serve } from './served.ts';

let served: Served;
let token: string;
before(async () => {
  served = await serve({ from: 28_300, to: 28_399 });
  token = await served.newToken();
});
after(() => served.close());

const lines = () =>
  served.shop.store.db.selectFrom('audit_log').selectAll().orderBy('id').execute();

async function call(method: string, path: string, body: object | undefined): Promise<Response> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  return fetch(`${served.url}${path}`, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  });
}

async function mutations(): Promise<{ method: string; path: string }[]> {
  const document = await (await fetch(`${served.url}/openapi.json`)).json();
  const { paths } = document as { paths: Record<string, Record<string, unknown>> };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((method) => method !== 'get')
      .map((method) => ({ method: method.toUpperCase(), path })),
  );
}

test('every refused change is written down, with its request and its token', async () => {
  const all = await mutations();
  assert.ok(all.length >= 9);
  for (const { method, path } of all) {
    const before = (await lines()).length;
    const answer = await call(method, path.replace(/\{[^}]+\}/g, '999'), {
      name: 7,
      public_key: 'x',
      instanceId: 7,
    });
    assert.ok(answer.status >= 400, `${method} ${path} is ${answer.status}`);
    await eventuallyPasses(5_000, async () =>
      assert.equal((await lines()).length, before + 1, path),
    );
    const line = (await lines()).slice(before);
    assert.equal(line[0]?.outcome, `refused ${answer.status}`);
    assert.equal(line[0]?.request_id, answer.headers.get('x-request-id'));
  }
});

test('what was done is written down once, and slow work again when it ends', async () => {
  const before = (await lines()).length;
  const size = {
    cpu_cores: 1,
    disk_size_gb: 10,
    gpu_type: 'cpu',
    num_gpus: 1,
    mode: 'prototyping',
    template: 'base',
  };
  const created = (await (await call('POST', '/v1/instances/create', size)).json()) as {
    uuid: string;
  };
  await served.shop.settle();
  assert.equal((await call('POST', `/v1/instances/${created.uuid}/add_key`, {})).status, 200);
  const written = (await lines())
    .slice(before)
    .map(({ action, outcome }) => `${action} ${outcome}`);
  assert.deepEqual(written, [
    'instance.create accepted',
    'instance.create done',
    'key.add generated',
  ]);
});

test('neither a key nor a token is in it', async () => {
  const before = (await lines()).length;
  await call('POST', `/v1/instances/${token}/add_key`, { public_key: token });
  await eventuallyPasses(5_000, async () => assert.ok((await lines()).length > before));
  const text = JSON.stringify(await lines());
  assert.ok(
    !text.includes(token.slice(6, 40)) && !text.includes('AAAA') && !text.includes('PRIVATE'),
  );
});
