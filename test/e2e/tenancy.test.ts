/** What belongs to another organization does not exist: the same answer as for an id never issued. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { type Api, SMALL_INSTANCE } from '../support/client.ts';
import { openHouse } from '../support/house.ts';
import { fingerprintOf } from '../support/keys.ts';
import { allRoutes, fill } from '../support/routes.ts';

const house = await openHouse();
after(() => house.dispose());
const owner = house.api;
const stranger: Api = await house.tenant('umbrella');
const main = await house.machine();
await owner.createSnapshot(main.id, 'private-matter');
const snapshot = await owner.snapshotReady('private-matter');
const fingerprint = encodeURIComponent(await fingerprintOf(main.publicKey));
const routes = await allRoutes(house.service.baseUrl);

const foreignIds: readonly (readonly [string, string, string])[] = [
  ['UUID', main.uuid, randomUUID()],
  ['number', main.id, '987654'],
  ['snapshot id', snapshot.id, randomUUID()],
];

/** Status and body with the id taken out, so that two answers can be compared. */
async function seen(
  api: Api,
  method: string,
  path: string,
  id: string,
  body?: unknown,
): Promise<string> {
  const answer = await api.call(method, path, { body });
  return `${answer.status} ${answer.text.replaceAll(`\\"${id}\\"`, '<id>')}`;
}

for (const route of routes.filter((one) => one.path.includes('{') && !one.isPublic)) {
  for (const [kind, foreign, unknown] of foreignIds) {
    test(`${route.method} ${route.path} with a foreign ${kind} is as for an unknown one`, async () => {
      const asked = async (id: string): Promise<string> =>
        seen(stranger, route.method, fill(route.path, { id, other: fingerprint }), id);
      const answered = await asked(foreign);
      assert.equal(answered, await asked(unknown));
      assert.match(answered, /^404 /);
    });
  }
}

test('with a body too, a foreign instance is as an unknown one', async () => {
  for (const body of [{}, { public_key: main.publicKey }, { verify: true }]) {
    const answers = await Promise.all(
      [main.uuid, randomUUID()].map((id) =>
        seen(stranger, 'POST', `/v1/instances/${id}/add_key`, id, body),
      ),
    );
    assert.equal(answers[0], answers[1]);
  }
});

test('a snapshot of a foreign instance is as one of an unknown instance', async () => {
  for (const [foreign, unknown] of [
    [main.uuid, randomUUID()],
    [main.id, '987654'],
  ] as const) {
    const asked = (id: string): Promise<string> => {
      const body = { instanceId: id, name: 'theft' };
      return seen(stranger, 'POST', '/v1/snapshots/create', id, body);
    };
    assert.equal(await asked(foreign), await asked(unknown));
    assert.match(await asked(foreign), /^404 /);
  }
});

test('the name or id of a foreign snapshot as a template is as an unknown one', async () => {
  for (const [foreign, unknown] of [
    ['private-matter', 'nothing-matters'],
    [snapshot.id, randomUUID()],
  ] as const) {
    const asked = (template: string): Promise<string> => {
      const body = { ...SMALL_INSTANCE, template };
      return seen(stranger, 'POST', '/v1/instances/create', template, body);
    };
    const answered = await asked(foreign);
    assert.equal(answered, await asked(unknown));
    assert.match(answered, /^40[04] /);
  }
});

test('lists of two organizations never mix', async () => {
  assert.equal((await stranger.instances()).size, 0);
  assert.deepEqual(await stranger.snapshots(), []);
  assert.deepEqual([...(await owner.instances()).keys()], [main.id]);
  await stranger.createToken('of-the-stranger');
  const names = (await owner.tokens()).map((token) => token.name);
  assert.ok(!names.includes('of-the-stranger'));
  assert.equal((await stranger.validate()).org_name, 'umbrella');
  assert.equal((await owner.validate()).org_name, 'acme');
});

test('numbers count from 0 in each organization, and names are free in each', async () => {
  const other = await house.machine({}, stranger);
  assert.equal(other.id, '0');
  assert.equal(main.id, '0');
  assert.notEqual(other.uuid, main.uuid);
  await stranger.createSnapshot('0', 'private-matter');
  const theirs = await stranger.snapshotReady('private-matter');
  assert.notEqual(theirs.id, snapshot.id);
  assert.deepEqual(
    (await owner.snapshots()).map((one) => one.id),
    [snapshot.id],
  );
  await stranger.refused(404, 'POST', `/v1/instances/${main.uuid}/add_key`);
  await owner.refused(404, 'POST', `/v1/instances/${other.uuid}/add_key`);
});

test("the same number reaches each organization's own instance", async () => {
  assert.equal((await owner.addKey('0')).uuid, main.uuid);
  assert.notEqual((await stranger.addKey('0')).uuid, main.uuid);
});

test("one organization's ETag means nothing to another", async () => {
  const { etag } = (await owner.call('GET', '/v1/snapshots/list')).headers;
  const headers = { 'if-none-match': etag ?? '' };
  const answer = await stranger.call('GET', '/v1/snapshots/list', { headers });
  assert.equal(answer.status, 200);
});

test("a token's name deletes only one's own token", async () => {
  const theirs = (await owner.tokens())[0]?.name ?? '';
  assert.equal(theirs, 'first');
  await owner.createToken('only-of-the-owner');
  const body = { name: 'only-of-the-owner' };
  await stranger.refused(404, 'DELETE', '/v1/token/delete', { body });
  assert.equal((await owner.validate()).valid, true);
});

test('nothing of all that changed what the owner has', async () => {
  const [kept] = await owner.snapshots();
  assert.deepEqual(kept, snapshot);
  assert.equal((await owner.instance(main.id)).status, 'RUNNING');
});
