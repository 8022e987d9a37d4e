/** Tokens: made, shown once, listed, ended at once. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Api } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { ask } from '../support/http.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;

function withToken(token: string): Api {
  return new Api(() => service.baseUrl, token);
}

test('validate names the organization and its address', async () => {
  assert.deepEqual(await api.validate(), {
    valid: true,
    email: 'acme@example.com',
    org_name: 'acme',
  });
});

test('a new token works at once, is listed by its visible start, and never shown again', async () => {
  const token = await api.createToken('laptop');
  assert.match(token, /^berth_/);
  assert.equal((await withToken(token).validate()).org_name, 'acme');
  const found = (await api.tokens()).find((one) => one.name === 'laptop');
  assert.ok(found !== undefined);
  assert.ok(token.startsWith(found.prefix.replace(/\W+$/, '')), found.prefix);
  assert.ok(found.prefix.length <= token.length / 2, 'the start alone');
  assert.ok(Math.abs(found.created_at - Date.now() / 1000) < 60);
  assert.equal(found.expires_at, undefined);
  const listed = await api.call('GET', '/v1/tokens');
  assert.ok(!listed.text.includes(token));
});

test('a token that was used shows when', async () => {
  const token = await api.createToken('used');
  const before = (await api.tokens()).find((one) => one.name === 'used');
  assert.equal(before?.last_used_at, undefined);
  await withToken(token).validate();
  const after = (await api.tokens()).find((one) => one.name === 'used');
  assert.ok(Math.abs((after?.last_used_at ?? 0) - Date.now() / 1000) < 120);
});

test('a deleted token is dead at once, and its name free', async () => {
  const token = await api.createToken('short-lived');
  const doomed = withToken(token);
  await doomed.validate();
  await api.deleteToken('short-lived');
  for (let again = 0; again < 5; again += 1) {
    await doomed.refused(401, 'GET', '/v1/auth/validate');
  }
  assert.ok(!(await api.tokens()).some((one) => one.name === 'short-lived'));
  await api.refused(404, 'DELETE', '/v1/token/delete', { body: { name: 'short-lived' } });
  assert.notEqual(await api.createToken('short-lived'), token);
});

test('a token may end itself', async () => {
  const doomed = withToken(await api.createToken('last-will'));
  await doomed.deleteToken('last-will');
  await doomed.refused(401, 'GET', '/v1/auth/validate');
});

test('a taken name is a 409 that names it, whoever of eight comes first', async () => {
  const body = { name: 'contested' };
  const answers = await Promise.all(
    Array.from({ length: 8 }, () => api.call('POST', '/v1/token/create', { body })),
  );
  const statuses = answers.map((answer) => answer.status).sort();
  assert.deepEqual(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
  const refused = await api.refused(409, 'POST', '/v1/token/create', { body });
  assert.match(refused.message, /contested/);
});

for (const body of [{}, { name: '' }, { name: 7 }, { name: null }, { name: 'x'.repeat(5000) }]) {
  test(`the token name in ${JSON.stringify(body).slice(0, 40)} is refused`, async () => {
    const refused = await api.refused(400, 'POST', '/v1/token/create', { body });
    assert.match(refused.message, /name/);
  });
}

test('tokens survive a restart, deleted ones stay dead', async () => {
  const kept = withToken(await api.createToken('kept'));
  const doomed = withToken(await api.createToken('doomed'));
  await api.deleteToken('doomed');
  await service.restart('SIGKILL');
  await kept.validate();
  await doomed.refused(401, 'GET', '/v1/auth/validate');
});

test('a token made by the admin command works while the service runs', async () => {
  const words = ['admin', 'token', 'create', '--org', 'acme', '--name', 'from-the-console'];
  const token = (await service.command(words)).trimEnd();
  assert.equal((await withToken(token).validate()).org_name, 'acme');
  await assert.rejects(service.command(words), 'a taken name is an error');
  const unknown = ['admin', 'token', 'create', '--org', 'nobody', '--name', 'x'];
  await assert.rejects(service.command(unknown), 'an unknown organization is an error');
});

test('a token that differs in one character is a 401', async () => {
  const changed = api.token.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a'));
  const headers = { authorization: `Bearer ${changed}` };
  const question = { method: 'GET', path: '/v1/auth/validate', headers };
  assert.equal((await ask(service.baseUrl, question)).status, 401);
});
