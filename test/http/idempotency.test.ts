/** `Idempotency-Key`: the same answer again, and the work done once. */

import assert from 'node:assert/strict';
import { after, afterEach, test } from 'node:test';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import { parseKey } from '../../src/http/idempotency.ts';
import { releaseKeptAnswers } from '../../src/store/kept-answers.ts';
import { assertSameAnswer, newKey, openKeyed, publicKey } from './keyed-requests.ts';

const keyed = await openKeyed({ from: 28_600, to: 28_649 });
after(() => keyed.close());
afterEach(() => keyed.served.shop.faults.clear());
const { served, machine, send, addKey, keyLines, rows, begin } = keyed;

const wanted = {
  cpu_cores: 1,
  disk_size_gb: 10,
  gpu_type: 'cpu',
  num_gpus: 1,
  mode: 'prototyping',
  template: 'base',
};

test('a generated key comes again, private half included, and stands in the file once', async () => {
  const before = await keyLines();
  const key = newKey();
  const first = await addKey({ key });
  assert.equal(first.status, 200, first.text);
  assert.match(first.text, /OPENSSH PRIVATE KEY/);
  assert.equal(first.headers.get('cache-control'), 'no-store');
  assertSameAnswer(first, await addKey({ key }));
  assertSameAnswer(first, await addKey({ key }));
  assert.equal((await keyLines()) - before, 1);
  assert.notEqual((await addKey({ key: newKey() })).text, first.text, 'another key, another pair');
});

test('a supplied key is recorded once, and its answer comes again', async () => {
  const key = newKey();
  const body = { public_key: publicKey.replace('test', 'other') };
  const first = await addKey({ key, body });
  assert.equal(first.status, 200, first.text);
  assertSameAnswer(first, await addKey({ key, body }));
});

for (const [name, extra] of Object.entries({
  generated: {},
  supplied: { public_key: publicKey },
})) {
  test(`an instance is made once (key ${name})`, async () => {
    const { shop } = served;
    const before = (await shop.instances.list(shop.actor)).length;
    const options = { key: newKey(), body: { ...wanted, ...extra } };
    const first = await send('/v1/instances/create', options);
    assert.equal(first.status, 201, first.text);
    assertSameAnswer(first, await send('/v1/instances/create', options));
    assert.equal((await shop.instances.list(shop.actor)).length - before, 1);
    const { uuid } = JSON.parse(first.text) as { uuid: string };
    const { publicKeys } = await shop.instances.get(shop.actor, uuid);
    assert.equal(publicKeys.length, 1, 'its key counts from the start');
  });
}

test('a token is made once', async () => {
  const options = { key: newKey(), body: { name: 'made once' } };
  const first = await send('/v1/token/create', options);
  assert.equal(first.status, 200, first.text);
  assertSameAnswer(first, await send('/v1/token/create', options));
  assert.equal((await send('/v1/token/create', { body: options.body })).status, 409);
});

test('a snapshot is made once, and not at all when its answer cannot be kept', async () => {
  const options = { key: newKey(), body: { instanceId: machine, name: 'made-once' } };
  const first = await send('/v1/snapshots/create', options);
  assert.equal(first.status, 202, first.text);
  assertSameAnswer(first, await send('/v1/snapshots/create', options));
  const { shop } = served;
  await shop.settle();
  const failing = async () => {
    throw new Error('on purpose');
  };
  await assert.rejects(shop.snapshots.create(shop.actor, machine, 'never-made', failing));
  await shop.snapshots.create(shop.actor, machine, 'never-made');
  await shop.settle();
});

test('an entry of the address book is made once', async () => {
  const body = { name: 'made once', public_key: generateKeyPair('made once').publicKey.line };
  const options = { key: newKey(), body };
  const first = await send('/v1/keys/add', options);
  assert.equal(first.status, 200, first.text);
  assertSameAnswer(first, await send('/v1/keys/add', options));
  assert.equal((await send('/v1/keys/add', { body })).status, 409);
});

test('work that keeps its answer afterwards is done once too', async () => {
  const options = { key: newKey() };
  const first = await send(`/v1/instances/${machine}/start`, options);
  assert.equal(first.status, 200, first.text);
  assertSameAnswer(first, await send(`/v1/instances/${machine}/start`, options));
});

test('no body, an empty object and nulls are one request; another body is another', async () => {
  const key = newKey();
  assert.equal((await addKey({ key })).status, 200);
  for (const raw of ['', '{}', ' { } ', '{"public_key": null}']) {
    assert.equal((await addKey({ key, raw })).replayed, true, raw);
  }
  const other = await addKey({ key, raw: '{"verify": true}' });
  assert.equal(other.status, 422);
  assert.equal(JSON.parse(other.text).error, 'idempotency_mismatch');
  assert.equal(other.replayed, false);
});

test('another path or query under the same key is a 422, another token is another caller', async () => {
  const key = newKey();
  assert.equal((await addKey({ key })).status, 200);
  assert.equal((await send(`/v1/instances/${machine}/start`, { key })).status, 422);
  assert.equal((await send(`/v1/instances/${machine}/add_key?x=1`, { key })).status, 422);
  const theirs = await addKey({ key, as: await served.newToken() });
  assert.deepEqual([theirs.status, theirs.replayed], [200, false]);
});

test('while the first is at work, the second is a 409 that names when to come back', async () => {
  const key = newKey();
  const begun = await begin(key, '/v1/instances/0/start');
  const path = '/v1/instances/0/start';
  const meanwhile = await send(path, { key });
  assert.equal(meanwhile.status, 409, meanwhile.text);
  assert.equal(JSON.parse(meanwhile.text).error, 'conflict');
  assert.equal(meanwhile.headers.get('retry-after'), '1');
  const otherBody = await send(path, { key, raw: '{"other": 1}' });
  assert.equal(otherBody.status, 422, 'another request is told so at once');
  assert.ok('open' in begun);
  await begun.open.release();
  const free = await send(path, { key });
  assert.deepEqual([free.status, free.replayed], [200, false]);
});

test('of 32 at once one does the work', async () => {
  const before = await keyLines();
  const key = newKey();
  const got = await Promise.all(Array.from({ length: 32 }, () => addKey({ key })));
  const done = got.filter((one) => one.status === 200);
  assert.equal(done.filter((one) => !one.replayed).length, 1);
  assert.equal(new Set(done.map((one) => one.text)).size, 1);
  assert.ok(got.every((one) => one.status === 200 || one.status === 409));
  assert.equal((await keyLines()) - before, 1);
  assert.equal((await addKey({ key })).text, done[0]?.text);
});

test('a refusal is not kept: the next one is a real try, also with a better body', async () => {
  const key = newKey();
  const before = (await rows()).length;
  assert.equal((await addKey({ key, body: { public_key: 'x' } })).status, 400);
  assert.equal((await addKey({ key, body: { verify: 7 } })).status, 400);
  served.shop.faults.inject('addKey', 1);
  assert.equal((await addKey({ key })).status, 502);
  served.shop.faults.inject('addKey', 1, { kind: 'not_running' });
  assert.equal((await addKey({ key })).status, 409);
  assert.equal((await rows()).length, before);
  const lines = await keyLines();
  const done = await addKey({ key });
  assert.deepEqual([done.status, done.replayed], [200, false]);
  assert.equal((await keyLines()) - lines, 1);
});

test('an answer that cannot be kept leaves no key behind', async () => {
  const { keys, actor, store } = served.shop;
  const lines = await keyLines();
  const recorded = () => store.db.selectFrom('instance_keys').selectAll().execute();
  const before = (await recorded()).length;
  const logged = async () => (await store.db.selectFrom('audit_log').select('id').execute()).length;
  const audited = await logged();
  for (const input of [{}, { publicKey: generateKeyPair('never added').publicKey.line }]) {
    const add = keys.add(actor, machine, { ...input, verify: false }, async () => {
      throw new Error('on purpose');
    });
    await assert.rejects(add, /on purpose/);
  }
  assert.equal(await keyLines(), lines);
  assert.equal((await recorded()).length, before);
  assert.equal(await logged(), audited, 'and no line that says it was done');
});

test('a key that was lost to another request while at work keeps nothing', async () => {
  const key = newKey();
  const path = '/v1/instances/0/start';
  const begun = await begin(key, path);
  served.shop.clock.nowMs += 61_000;
  const second = await send(path, { key });
  assert.deepEqual([second.status, second.replayed], [200, false], 'nobody waits for the dead');
  assert.ok('open' in begun);
  const late = { status: 200, headers: {}, body: 'late' };
  await assert.rejects(
    served.shop.store.transaction((tx) => begun.open.keep(tx, late)),
    /too long/,
  );
  await begun.open.release();
  assertSameAnswer(second, await send(path, { key }));
});

test('an answer that is kept stays, whatever becomes of its request', async () => {
  const [key, path] = [newKey(), '/v1/instances/0/start'];
  const begun = await begin(key, path);
  assert.ok('open' in begun);
  const answer = { status: 200, headers: { 'x-kept': 'yes' }, body: 'kept' };
  await begun.open.keepAfterwards(answer);
  await begun.open.release();
  const got = await send(path, { key });
  assert.deepEqual([got.replayed, got.text, got.headers.get('x-kept')], [true, 'kept', 'yes']);
});

test('what a node had in flight when it died is free after its restart', async () => {
  const [key, path] = [newKey(), '/v1/instances/0/start'];
  await begin(key, path);
  await releaseKeptAnswers(served.shop.store.db, 'test');
  assert.equal((await send(path, { key })).status, 409, 'of another node it is not');
  await releaseKeptAnswers(served.shop.store.db, 'another node');
  const first = await send(path, { key });
  assert.deepEqual([first.status, first.replayed], [200, false]);
  await releaseKeptAnswers(served.shop.store.db, 'test');
  assert.equal((await send(path, { key })).replayed, true, 'answers stay');
});

test('without the header nothing is kept, and other methods ignore it', async () => {
  const before = (await rows()).length;
  assert.equal((await addKey()).status, 200);
  const read = { method: 'GET', key: '"' };
  assert.equal((await send(`/v1/instances/${machine}/keys`, read)).status, 200);
  assert.equal((await send('/v1/snapshots/list', { ...read, key: 'k' })).status, 200);
  const gone = `/v1/instances/${machine}/keys/SHA256:nothing`;
  assert.equal((await send(gone, { method: 'DELETE', key: '"' })).status, 404);
  assert.equal((await send('/v1/nowhere', { key: 'k' })).status, 404);
  assert.equal((await rows()).length, before);
});

test('both forms of a key name the same one', async () => {
  const key = newKey();
  const first = await addKey({ key });
  assertSameAnswer(first, await addKey({ key: `"${key}"` }));
});

test('what the header may hold', async () => {
  for (const [given, key] of [
    ['8e03978e-40d5-43dd-bc93-6894a57f9324', '8e03978e-40d5-43dd-bc93-6894a57f9324'],
    ['"8e03978e"', '8e03978e'],
    [' "a b" ', 'a b'],
    ['"a\\"b\\\\"', 'a"b\\'],
    ['~'.repeat(255), '~'.repeat(255)],
    ['x,y;z=1', 'x,y;z=1'],
  ]) {
    assert.equal(parseKey(given), key);
  }
  const bad = [
    '',
    ' ',
    '""',
    '" "',
    '"a',
    'a"',
    '"a"b"',
    'a b',
    'a, b',
    '"a", "b"',
    '"a\\x"',
    '\u00e9',
  ];
  for (const given of [...bad, '~'.repeat(256), `"${'~'.repeat(256)}"`, 'a\tb', undefined]) {
    assert.throws(() => parseKey(given), /1 to 255 visible ASCII/, `${given}`);
  }
  const refused = await addKey({ key: 'a b' });
  assert.equal(refused.status, 400);
  assert.match(refused.text, /Idempotency-Key/);
});
