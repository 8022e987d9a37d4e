/** Kept answers: how long, how many, and that nobody but the caller can read them. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { hashToken } from '../../src/domain/ids.ts';
import { KeptAnswerService, keptPerToken } from '../../src/services/kept-answers.ts';
import { newKey, openKeyed } from './keyed-requests.ts';

const keyed = await openKeyed({ from: 28_650, to: 28_699 });
after(() => keyed.close());
const { served, token, send, addKey, rows } = keyed;

test('after ten minutes it is another request, and the sweep has deleted the answer', async () => {
  const { shop } = served;
  const key = newKey();
  const first = await addKey({ key });
  shop.clock.nowMs += 10 * 60_000 - 1000;
  assert.equal((await addKey({ key })).replayed, true);
  const sweeper = new KeptAnswerService(shop.context, 'test');
  await sweeper.sweep();
  assert.equal((await addKey({ key })).replayed, true);
  shop.clock.nowMs += 1001;
  const later = await addKey({ key });
  assert.deepEqual([later.status, later.replayed, later.text === first.text], [200, false, false]);
  shop.clock.nowMs += 10 * 60_000;
  await sweeper.sweep();
  assert.deepEqual(await rows(), []);
});

test('the answers of a token go with it', async () => {
  const { shop } = served;
  const mine = await served.newToken();
  const idOf = async () =>
    await shop.store.db
      .selectFrom('tokens')
      .select(['id', 'name'])
      .where('hash', '=', hashToken(mine))
      .executeTakeFirstOrThrow();
  const { id, name } = await idOf();
  const left = async () => (await rows()).filter((row) => row.token_id === id).length;
  await addKey({ key: newKey(), as: mine });
  assert.equal(await left(), 1);
  const deletion = { method: 'DELETE', body: { name } };
  assert.equal((await send('/v1/token/delete', deletion)).status, 200);
  assert.equal(await left(), 0);
});

test('the answers of a token that has ended are swept', async () => {
  const { shop } = served;
  const mine = await served.newToken();
  const ofMine = () => shop.store.db.updateTable('tokens').where('hash', '=', hashToken(mine));
  await addKey({ key: newKey(), as: mine });
  const before = (await rows()).length;
  await ofMine().set({ expires_at: shop.clock.nowMs }).execute();
  await new KeptAnswerService(shop.context, 'test').sweep();
  assert.equal((await rows()).length, before - 1);
});

test('nothing in the row can be read, and an answer opens in its own row alone', async () => {
  const [first, second] = [newKey(), newKey()];
  const answer = await addKey({ key: first });
  await addKey({ key: second });
  const stored = JSON.stringify(await rows());
  const { key, uuid } = JSON.parse(answer.text) as { key: string; uuid: string };
  for (const secret of [token, first, second, key.split('\n')[2] ?? '', uuid, 'success']) {
    assert.ok(!stored.includes(secret) && secret.length > 4, secret);
  }
  const mine = (await rows()).slice(-2);
  await served.shop.store.db
    .updateTable('kept_answers')
    .set({ sealed: mine[1]?.sealed ?? '' })
    .where('id', '=', mine[0]?.id ?? '')
    .execute();
  const swapped = await addKey({ key: first });
  assert.equal(swapped.status, 500, swapped.text);
  assert.match(swapped.text, /damaged/);
  assert.equal((await addKey({ key: second })).replayed, true);
});

test('an answer that was passed off as that of another request does not open', async () => {
  const { db } = served.shop.store;
  const [first, second] = [newKey(), newKey()];
  await addKey({ key: first });
  await addKey({ key: second, raw: '{"verify":false}' });
  const [mine, other] = (await rows()).slice(-2);
  assert.ok(mine && other && mine.request_hash !== other.request_hash);
  await db.deleteFrom('kept_answers').where('id', '=', other.id).execute();
  const { key_hash, request_hash } = other;
  await db
    .updateTable('kept_answers')
    .set({ key_hash, request_hash })
    .where('id', '=', mine.id)
    .execute();
  assert.equal((await addKey({ key: second, raw: '{"verify":false}' })).status, 500);
});

test('a token keeps a bounded number of answers, the newest', async () => {
  const { shop } = served;
  const mine = await served.newToken();
  const actor = await served.tokens.authenticate(mine, 'test');
  const fill = (sealed: string | null) =>
    shop.store.transaction(async (tx) => {
      await tx.deleteFrom('kept_answers').where('token_id', '=', actor.tokenId).execute();
      const [org_id, token_id] = [actor.orgId, actor.tokenId];
      const now = shop.clock.nowMs;
      for (let number = 0; number < keptPerToken; number += 1) {
        const names = { id: `${number}`, key_hash: `${number}`, request_hash: '', owner: '' };
        const times = { created_at: now - keptPerToken + number, expires_at: now + 60_000 };
        const row = { ...names, ...times, org_id, token_id, sealed };
        await tx.insertInto('kept_answers').values(row).execute();
      }
    });
  const ids = async () =>
    (await rows()).filter((row) => row.token_id === actor.tokenId).map((row) => row.id);
  await fill('sealed');
  assert.equal((await addKey({ key: newKey(), as: mine })).status, 200);
  assert.equal((await ids()).length, keptPerToken);
  assert.ok(!(await ids()).includes('0') && (await ids()).includes('1'), 'the oldest went');
  await fill(null);
  const refused = await addKey({ key: newKey(), as: mine });
  assert.equal(refused.status, 429, refused.text);
  assert.equal(refused.headers.get('retry-after'), '1');
  assert.equal((await ids()).length, keptPerToken);
});
