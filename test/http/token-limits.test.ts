/** No token gives what it lacks, outlives its maker, or goes on when its member's role does not. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { allScopes, type Scope } from '../../src/domain/scopes.ts';
import { AdminTokenService } from '../../src/services/admin-tokens.ts';
import { MemberService } from '../../src/services/members.ts';
import { OrganizationService } from '../../src/services/organizations.ts';
import { claimPorts } from '../support/ports.ts';
import { type Served, serve } from './served.ts';

let served: Served;
let admin: { tokens: AdminTokenService; members: MemberService };
let root: string;

before(async () => {
  served = await serve(await claimPorts(4));
  const { store, context } = served.shop;
  admin = {
    tokens: new AdminTokenService(store, context.now),
    members: new MemberService(store, context.now),
  };
  root = await served.newToken();
});
after(() => served.close());

interface Listed {
  readonly name: string;
  readonly scopes: string[];
  readonly expires_at?: number;
}

async function call(token: string, method: string, path: string, body?: object): Promise<Response> {
  return fetch(served.url + path, {
    method,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
}

const create = (token: string, more: object = {}) =>
  call(token, 'POST', '/v1/token/create', { name: newId(), ...more });

async function made(token: string, more: object = {}): Promise<string> {
  const answer = await create(token, more);
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return (JSON.parse(text) as { token: string }).token;
}

async function refused(status: number, pending: Promise<Response>): Promise<string> {
  const answer = await pending;
  const text = await answer.text();
  assert.equal(answer.status, status, text);
  return (JSON.parse(text) as { message: string }).message;
}

async function listed(name: string): Promise<Listed | undefined> {
  const answer = await call(root, 'GET', '/v1/tokens');
  return ((await answer.json()) as Listed[]).find((one) => one.name === name);
}

const status = async (token: string, path = '/v1/auth/validate') =>
  (await call(token, 'GET', path)).status;

/** The service forgets what it remembers of tokens after a second. */
const passSeconds = (seconds: number) => {
  served.shop.clock.nowMs += seconds * 1000 + 1;
};

for (const scope of allScopes.filter((one) => one !== 'admin')) {
  test(`${scope} gives itself and nothing else`, async () => {
    const maker = await made(root, { scopes: [scope] });
    for (const other of allScopes.filter((one) => one !== scope)) {
      const message = await refused(403, create(maker, { scopes: [scope, other] }));
      assert.ok(message.includes(`"${other}"`), message);
    }
    const child = await made(maker, { scopes: [scope] });
    await refused(403, create(child, { scopes: ['admin'] }));
  });
}

test('admin gives every scope, and left out, a token gets what its maker has', async () => {
  for (const scope of allScopes) await made(root, { scopes: [scope] });
  const scopes = ['instances:read', 'keys:write'];
  const maker = await made(root, { scopes });
  await made(maker, { name: 'inherited' });
  assert.deepEqual((await listed('inherited'))?.scopes, scopes);
  await made(root, { name: 'inherited from admin' });
  assert.deepEqual((await listed('inherited from admin'))?.scopes, ['admin']);
});

for (const [scopes, name] of [
  [[], 'empty'],
  [['root'], 'root'],
  [['instances:read', 'Admin'], 'Admin'],
  [['keys:write', 'keys:write'], 'keys:write'],
  [['admin', ''], '""'],
] as const) {
  test(`the scopes ${JSON.stringify(scopes)} are a 400 that says what there is`, async () => {
    const message = await refused(400, create(root, { scopes }));
    assert.ok(message.includes(name), message);
    for (const scope of allScopes) assert.ok(message.includes(scope), message);
  });
}

for (const scopes of ['admin', [7], { admin: true }]) {
  test(`scopes that are ${JSON.stringify(scopes)} are a 400 that names the field`, async () => {
    assert.match(await refused(400, create(root, { scopes })), /scopes/);
  });
}

for (const expires of [59, 0, -60, 315_360_001, 60.5, '60', true]) {
  test(`expires_in_seconds ${JSON.stringify(expires)} is a 400 that names the field`, async () => {
    assert.match(
      await refused(400, create(root, { expires_in_seconds: expires })),
      /expires_in_seconds/,
    );
  });
}

test('a token ends when it was to end, to the second', async () => {
  const token = await made(root, { name: 'a minute', expires_in_seconds: 60 });
  const end = Math.floor((served.shop.clock.nowMs + 60_000) / 1000);
  assert.equal((await listed('a minute'))?.expires_at, end);
  passSeconds(58);
  assert.equal(await status(token), 200);
  served.shop.clock.nowMs += 1998;
  assert.equal(await status(token), 200);
  served.shop.clock.nowMs += 1;
  assert.equal(await status(token), 401, 'although it was remembered a moment ago');
  await refused(401, create(token));
  await made(root, { expires_in_seconds: 315_360_000 });
});

test('a token that ended while its request was under way makes none', async () => {
  const token = await made(root, { expires_in_seconds: 60 });
  const actor = await served.tokens.authenticate(token, 'test');
  passSeconds(60);
  await assert.rejects(served.tokens.create(actor, { name: newId() }), { kind: 'unauthorized' });
});

test('no token outlives its maker', async () => {
  const maker = await made(root, { name: 'maker', expires_in_seconds: 3600 });
  await made(maker, { name: 'silent child' });
  const end = (await listed('maker'))?.expires_at;
  assert.equal((await listed('silent child'))?.expires_at, end);
  await made(maker, { name: 'equal child', expires_in_seconds: 3600 });
  assert.equal((await listed('equal child'))?.expires_at, end);
  const shorter = await made(maker, { expires_in_seconds: 60 });
  await refused(400, create(shorter, { expires_in_seconds: 61 }));
  const message = await refused(400, create(maker, { expires_in_seconds: 3601 }));
  assert.match(message, /expires_in_seconds.*3601.*ends in 3600 seconds/);
});

test('a token deletes itself; another one only with admin', async () => {
  const writer = await made(root, {
    name: 'writer',
    scopes: allScopes.filter((scope) => scope !== 'admin'),
  });
  const victim = await made(root, { name: 'victim' });
  const remove = (token: string, name: string) =>
    call(token, 'DELETE', '/v1/token/delete', { name });
  assert.match(await refused(403, remove(writer, 'victim')), /admin/);
  assert.equal(await status(victim), 200);
  await refused(404, remove(writer, 'nothing of that name'));
  assert.equal((await remove(writer, 'writer')).status, 200);
  assert.equal(await status(writer), 401);
  assert.equal((await remove(root, 'victim')).status, 200);
  assert.equal(await status(victim), 401);
});

async function newMember(role: 'owner' | 'member' | 'viewer') {
  const email = `${newId()}@example.org`;
  await admin.members.add('workshop', email, role);
  const name = newId();
  const token = (await admin.tokens.create({ organization: 'workshop', name, email })).token;
  return { email, name, token };
}

test("a role limits its member's tokens, and they shrink and grow with it", async () => {
  const { email, name, token } = await newMember('owner');
  assert.equal(await status(token, '/v1/audit'), 200);
  await admin.members.setRole('workshop', email, 'viewer');
  assert.deepEqual((await listed(name))?.scopes, ['instances:read', 'snapshots:read']);
  const message = await refused(403, create(token, { scopes: ['keys:write'] }));
  assert.match(message, /keys:write/, 'at once, although the token is remembered');
  passSeconds(1);
  assert.equal(await status(token, '/v1/audit'), 403);
  assert.equal(await status(token, '/v1/instances/list'), 200);
  await refused(403, call(token, 'POST', '/v1/keys/add', {}));
  await admin.members.setRole('workshop', email, 'member');
  passSeconds(1);
  await refused(400, call(token, 'POST', '/v1/keys/add', {}));
  assert.equal(await status(token, '/v1/audit'), 403);
});

test('a token whose role left it nothing still says who it is, and makes none', async () => {
  const { email } = await newMember('member');
  const wanted = { organization: 'workshop', name: newId(), email, scopes: ['keys:write'] };
  const { token } = await admin.tokens.create(wanted);
  await admin.members.setRole('workshop', email, 'viewer');
  assert.equal(await status(token), 200);
  await refused(403, create(token));
});

test('an operator gives nobody more than the role allows', async () => {
  const { email } = await newMember('viewer');
  for (const scope of ['admin', 'keys:write'] satisfies Scope[]) {
    const wanted = { organization: 'workshop', name: newId(), email, scopes: [scope] };
    await assert.rejects(admin.tokens.create(wanted), { kind: 'invalid_request' });
  }
});

test("with a member go the member's tokens, and what they would still have made", async () => {
  const { email, token, name } = await newMember('member');
  const child = await made(token);
  assert.equal(await status(token), 200);
  await admin.members.remove('workshop', email);
  await refused(401, create(token));
  passSeconds(1);
  assert.equal(await status(token), 401);
  assert.equal(await status(child), 401);
  assert.equal(await listed(name), undefined);
});

test('the last owner stays, and stays owner', async () => {
  const organizations = new OrganizationService(served.shop.store, served.shop.context.now);
  await organizations.create({ name: 'small', email: 'one@example.org' });
  const last = { kind: 'conflict', message: /last owner/ };
  await assert.rejects(admin.members.remove('small', 'one@example.org'), last);
  await assert.rejects(admin.members.setRole('small', 'one@example.org', 'member'), last);
  await admin.members.setRole('small', 'one@example.org', 'owner');
  await admin.members.add('small', 'two@example.org', 'owner');
  const leaving = ['one@example.org', 'two@example.org'].map((email) =>
    admin.members.remove('small', email),
  );
  const outcomes = (await Promise.allSettled(leaving)).map((one) => one.status).sort();
  assert.deepEqual(outcomes, ['fulfilled', 'rejected'], 'not both at once');
  assert.equal((await admin.members.list('small')).length, 1);
});

test('tokens of another organization are neither seen nor ended', async () => {
  const organizations = new OrganizationService(served.shop.store, served.shop.context.now);
  await organizations.create({ name: 'others', email: 'test@localhost' });
  const { token } = await admin.tokens.create({ organization: 'others', name: 'theirs' });
  assert.equal(await listed('theirs'), undefined);
  await refused(404, call(root, 'DELETE', '/v1/token/delete', { name: 'theirs' }));
  assert.equal(await status(token), 200);
});

test('every refusal and every token is in the audit log, and no token is', async () => {
  const token = await made(root, { name: 'audited', scopes: ['keys:write'] });
  await refused(403, create(token, { scopes: ['admin'] }));
  const answer = await call(root, 'GET', '/v1/audit?limit=10');
  const text = await answer.text();
  assert.match(text, /token\.create.*audited|audited.*token\.create/);
  assert.match(text, /refused 403/);
  assert.ok(!text.includes(token.slice(14)));
});
