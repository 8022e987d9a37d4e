/** The address book of keys, and where a key is authorized. */

import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import { insertBookKey } from '../../src/store/keys.ts';
import { smallest } from '../services/workshop.ts';
import { fields, filledText, integer, listOf, matching, oneOf } from '../support/shape.ts';
import { type Served, serve } from './served.ts';
import { newScopedToken, newTenantToken } from './tenants.ts';

let served: Served;
let token: string;
before(async () => {
  served = await serve({ from: 28_700, to: 28_799 });
  token = await served.newToken();
});
after(() => served.close());

const uuid = matching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
const bookKey = fields({
  id: uuid,
  name: filledText,
  public_key: filledText,
  fingerprint: matching(/^SHA256:[A-Za-z0-9+/]{43}$/),
  key_type: filledText,
  created_at: integer,
});

async function call(method: string, path: string, body?: object, as = token) {
  const response = await fetch(`${served.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${as}`,
      ...(body && { 'content-type': 'application/json' }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text };
}

const newLine = (comment = 'test'): string => generateKeyPair(comment).publicKey.line;
const parsed = (text: string): unknown => JSON.parse(text);

async function add(name: string, line: string) {
  const answer = await call('POST', '/v1/keys/add', { name, public_key: line });
  assert.equal(answer.status, 200, answer.text);
  const shape = fields({ key: bookKey, message: filledText });
  return shape(parsed(answer.text), 'keys/add').key;
}

async function book(as = token) {
  const answer = await call('GET', '/v1/keys/list', undefined, as);
  assert.equal(answer.status, 200, answer.text);
  return listOf(bookKey)(parsed(answer.text), 'keys/list');
}

test('a key is added, listed and deleted', async () => {
  const line = newLine('you@laptop');
  const key = await add('my laptop', `  ${line}\r\n`);
  assert.deepEqual([key.name, key.public_key, key.key_type], ['my laptop', line, 'ssh-ed25519']);
  assert.equal(key.created_at, Math.floor(served.shop.clock.nowMs / 1000));
  assert.deepEqual((await book()).at(-1), key);
  const deleted = await call('DELETE', `/v1/keys/${key.id}`);
  assert.deepEqual([deleted.status, deleted.text], [204, '']);
  assert.ok(!(await book()).some((one) => one.id === key.id));
  assert.equal((await call('DELETE', `/v1/keys/${key.id}`)).status, 404);
});

test('the same key under another comment is a 409 that names the first', async () => {
  const line = newLine('one');
  await add('the first', line);
  const again = line.replace(/one$/, 'two');
  const answer = await call('POST', '/v1/keys/add', { name: 'the second', public_key: again });
  assert.equal(answer.status, 409, answer.text);
  assert.match(answer.text, /the first/);
});

test('of two that add one key at once, one does', async () => {
  const body = { name: 'race', public_key: newLine() };
  const answers = await Promise.all([1, 2, 3].map(() => call('POST', '/v1/keys/add', body)));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409, 409]);
  assert.equal((await book()).filter(({ name }) => name === 'race').length, 1);
});

test('names may repeat', async () => {
  await add('twice', newLine());
  await add('twice', newLine());
});

test('what is no public key, or no name, is a 400', async () => {
  const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
  const bad: [string, object, RegExp][] = [
    ['a private key', { name: 'n', public_key: pem }, /exposed/],
    ['options', { name: 'n', public_key: `command="x" ${newLine()}` }, /option/],
    ['no key', { name: 'n' }, /public_key/],
    ['no name', { public_key: newLine() }, /name/],
    ['an empty name', { name: '', public_key: newLine() }, /name/],
    ['a line feed', { name: 'a\nb', public_key: newLine() }, /name/],
    ['a long name', { name: 'n'.repeat(65), public_key: newLine() }, /name/],
    ['a number', { name: 1, public_key: newLine() }, /name/],
  ];
  for (const [what, body, message] of bad) {
    const answer = await call('POST', '/v1/keys/add', body);
    assert.equal(answer.status, 400, what);
    assert.match(answer.text, message, what);
    assert.doesNotMatch(answer.text, /BEGIN/, what);
  }
});

test("another organization's key does not exist", async () => {
  const line = newLine();
  const key = await add('ours', line);
  const other = await newTenantToken(served.shop);
  assert.deepEqual(await book(other), []);
  const never = await call('DELETE', `/v1/keys/${newId()}`, undefined, other);
  const theirs = await call('DELETE', `/v1/keys/${key.id}`, undefined, other);
  assert.equal(theirs.status, 404);
  assert.equal(theirs.text.length, never.text.length);
  assert.equal((await call('GET', `/v1/keys/${key.id}/instances`, undefined, other)).status, 404);
  const body = { name: 'theirs', public_key: line };
  assert.equal((await call('POST', '/v1/keys/add', body, other)).status, 200, 'not a duplicate');
  assert.ok((await book()).some(({ id }) => id === key.id));
});

test('scopes: to read instances is to read the book; to change it takes keys:write', async () => {
  const { shop } = served;
  const key = await add('scoped', newLine());
  const reader = await newScopedToken(shop, ['instances:read']);
  const writer = await newScopedToken(shop, ['keys:write']);
  const stranger = await newScopedToken(shop, ['snapshots:read']);
  const body = { name: 'x', public_key: newLine() };
  const statuses = async (as: string) => [
    (await call('GET', '/v1/keys/list', undefined, as)).status,
    (await call('GET', `/v1/keys/${key.id}/instances`, undefined, as)).status,
    (await call('POST', '/v1/keys/add', body, as)).status,
    (await call('DELETE', `/v1/keys/${newId()}`, undefined, as)).status,
  ];
  assert.deepEqual(await statuses(stranger), [403, 403, 403, 403]);
  assert.deepEqual(await statuses(reader), [200, 200, 403, 403]);
  assert.deepEqual(await statuses(writer), [200, 403, 200, 404]);
});

test('the book is full at 1000', async () => {
  const { store, actor } = served.shop;
  const have = (await book()).length;
  await store.transaction(async (tx) => {
    for (let number = have; number < 1000; number++)
      await insertBookKey(tx, {
        id: newId(),
        org_id: actor.orgId,
        name: 'filler',
        public_key: 'x',
        key_type: 'x',
        fingerprint: `x${number}`,
        created_at: 0,
      });
  });
  const body = { name: 'one more', public_key: newLine() };
  const refused = await call('POST', '/v1/keys/add', body);
  assert.equal(refused.status, 409, refused.text);
  assert.match(refused.text, /1000/);
  await store.db.deleteFrom('keys').where('name', '=', 'filler').execute();
  assert.equal((await call('POST', '/v1/keys/add', body)).status, 200);
});

test('both changes are audited, by fingerprint', async () => {
  const key = await add('audited', newLine());
  await call('DELETE', `/v1/keys/${key.id}`);
  const lines = await served.shop.store.db
    .selectFrom('audit_log')
    .select(['action', 'outcome'])
    .where('subject', '=', key.fingerprint)
    .orderBy('id')
    .execute();
  assert.deepEqual(
    lines.map(({ action, outcome }) => `${action} ${outcome}`),
    ['key_book.add done', 'key_book.remove done'],
  );
});

test('paths of the book answer their own methods', async () => {
  const key = await add('methods', newLine());
  const wrong = await call('GET', `/v1/keys/${key.id}`);
  assert.deepEqual([wrong.status, wrong.headers.get('allow')], [405, 'DELETE']);
  assert.equal((await call('GET', `/v1/keys/${key.fingerprint}`)).status < 500, true);
  assert.notEqual((await call('GET', `/v1/keys/${key.fingerprint}`)).status, 200);
});

const place = fields(
  {
    uuid,
    identifier: integer,
    name: filledText,
    status: filledText,
    presence: oneOf('present', 'unknown', 'missing', 'recorded', 'unchecked'),
  },
  {
    access: oneOf('full', 'limited', 'signer', 'expired', 'ignored'),
    source: filledText,
    reason: filledText,
  },
);

async function places(reference: string, query = '') {
  const answer = await call('GET', `/v1/keys/${reference}/instances${query}`);
  assert.equal(answer.status, 200, answer.text);
  return listOf(place)(parsed(answer.text), reference);
}

/** A running instance, and the engine's name for it. */
async function machine() {
  const { shop } = served;
  const created = await shop.instances.create(shop.actor, { ...smallest, publicKey: newLine() });
  await shop.settle();
  const row = await shop.store.db
    .selectFrom('instances')
    .selectAll()
    .where('id', '=', created.uuid)
    .executeTakeFirstOrThrow();
  assert.equal(row.status, 'RUNNING', row.failure ?? '');
  return row;
}

/** A key whose fingerprint has a "/". */
function slashed() {
  for (;;) {
    const { publicKey } = generateKeyPair('slashed');
    if (publicKey.fingerprint.includes('/')) return publicKey;
  }
}

test('a key is found in the real files, recorded or not, however it is named', async () => {
  const [one, two] = [await machine(), await machine()];
  const { engine, keys, actor } = served.shop;
  const key = slashed();
  await keys.add(actor, one.id, { publicKey: key.line, verify: false });
  await engine.addKey(two.engine_ref, { publicKey: key.line });
  const entry = await add('to be found', key.line);
  const names = [
    entry.id,
    key.fingerprint,
    encodeURIComponent(key.fingerprint),
    encodeURIComponent(key.fingerprint.slice(7)),
  ];
  for (const name of names) {
    const found = await places(name);
    assert.deepEqual(
      found.map(({ uuid: id, presence, access, source }) => [id, presence, access, source]),
      [
        [one.id, 'present', 'full', 'supplied'],
        [two.id, 'unknown', 'full', 'file'],
      ],
      name,
    );
  }
  // By hand, behind our back.
  await engine.removeKey(one.engine_ref, { kind: 'key', publicKey: key.line });
  assert.deepEqual(
    (await places(key.fingerprint)).map(({ uuid: id }) => id),
    [two.id],
  );
  const withMissing = await places(key.fingerprint, '?missing=true');
  assert.deepEqual(
    withMissing.map(({ presence, access }) => [presence, access]),
    [
      ['missing', undefined],
      ['unknown', 'full'],
    ],
  );
  const listed = await call('GET', `/v1/instances/${one.id}/keys?presence=true`);
  const items = JSON.parse(listed.text) as { fingerprint: string; presence: string }[];
  assert.deepEqual(
    items.map(({ fingerprint, presence }) => [fingerprint === key.fingerprint, presence]),
    [
      [false, 'present'],
      [true, 'missing'],
    ],
  );
});

test('a file that cannot be read is never silently left out', async () => {
  const row = await machine();
  const { faults, keys, actor } = served.shop;
  const key = generateKeyPair('recorded').publicKey;
  await keys.add(actor, row.id, { publicKey: key.line, verify: false });
  const count = (await served.shop.instances.list(actor)).length;
  try {
    faults.inject('readKeys', count, { kind: 'unavailable' });
    const found = await places(key.fingerprint);
    assert.equal(found.length, count);
    const ours = found.find(({ uuid: id }) => id === row.id);
    assert.deepEqual([ours?.presence, ours?.source], ['recorded', 'supplied']);
    assert.ok(ours?.reason);
    faults.inject('readKeys', count, { kind: 'unavailable' });
    const elsewhere = await places(generateKeyPair('nowhere').publicKey.fingerprint);
    assert.deepEqual([...new Set(elsewhere.map(({ presence }) => presence))], ['unchecked']);
  } finally {
    faults.clear();
  }
  assert.deepEqual(await places(generateKeyPair('nowhere').publicKey.fingerprint), []);
});

test('wrong parameters are 400s that name them; what is no key is a 404', async () => {
  const { fingerprint } = generateKeyPair('x').publicKey;
  const wrong = await call(
    'GET',
    `/v1/keys/${encodeURIComponent(fingerprint)}/instances?missing=1`,
  );
  assert.equal(wrong.status, 400);
  assert.match(wrong.text, /missing/);
  for (const bad of ['nonsense', 'SHA256:', 'SHA256:%00', 'MD5:aa', '0', newId()])
    assert.equal((await call('GET', `/v1/keys/${bad}/instances`)).status, 404, bad);
  const row = await machine();
  const presence = await call('GET', `/v1/instances/${row.id}/keys?presence=yes`);
  assert.equal(presence.status, 400);
  assert.match(presence.text, /presence/);
});

test('without presence=true the items have the six fields of the contract', async () => {
  const row = await machine();
  const answer = await call('GET', `/v1/instances/${row.id}/keys`);
  const [item] = JSON.parse(answer.text) as object[];
  const six = ['added_at', 'comment', 'fingerprint', 'key_type', 'public_key', 'source'];
  assert.deepEqual(Object.keys(item ?? {}).sort(), six);
});
