/** `GET /v1/audit`: an organization reads its own log, newest first, page by page. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashToken, newId } from '../../src/domain/ids.ts';
import { audit } from '../../src/services/audit.ts';
import { verifyChain } from '../../src/services/audit-verification.ts';
import { insertOrganization } from '../../src/store/organizations.ts';
import { eventuallyPasses } from '../support/waiting.ts';
import { type Served, serve } from './served.ts';

let served: Served;
let token: string;
before(async () => {
  served = await serve({ from: 28_700, to: 28_799 });
  token = await served.newToken();
});
after(() => served.close());

interface Line {
  readonly id: number;
  readonly at: string;
  readonly token?: string;
  readonly request_id?: string;
  readonly action: string;
  readonly subject: string;
  readonly outcome: string;
  readonly hash?: string;
}

const get = (path: string): Promise<Response> =>
  fetch(`${served.url}${path}`, { headers: { authorization: `Bearer ${token}` } });

async function read(path: string): Promise<{ lines: Line[]; next: string | undefined }> {
  const answer = await get(path);
  assert.equal(answer.status, 200);
  const next = /^<([^>]+)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1];
  return { lines: (await answer.json()) as Line[], next };
}

const write = (orgId: string, subject: string) =>
  served.shop.store.transaction((tx) =>
    audit(tx, { orgId, tokenId: null, requestId: null }, served.shop.clock.nowMs, {
      action: 'test.write',
      subject,
      outcome: 'done',
    }),
  );

async function makeToken(name: string): Promise<Response> {
  return fetch(`${served.url}/v1/token/create`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name }),
  });
}

test('a line has the request, the token by its name, and the hash', async () => {
  const made = await makeToken('seen');
  const [line] = (await read('/v1/audit?limit=1')).lines;
  assert.ok(line !== undefined);
  const { name } = await served.shop.store.db
    .selectFrom('tokens')
    .select('name')
    .where('hash', '=', hashToken(token))
    .executeTakeFirstOrThrow();
  const { hash, ...others } = line;
  assert.match(hash ?? '', /^[0-9a-f]{64}$/);
  assert.deepEqual(others, {
    id: line.id,
    at: new Date(served.shop.clock.nowMs).toISOString(),
    token: name,
    request_id: made.headers.get('x-request-id'),
    action: 'token.create',
    subject: 'seen',
    outcome: 'done',
  });
});

test('what has no token, or one that is gone, and what no request asked is left out', async () => {
  const { orgId } = served.shop.actor;
  await write(orgId, 'by itself');
  const [line] = (await read('/v1/audit?limit=1')).lines;
  const fields = Object.keys(line ?? {}).sort();
  assert.deepEqual(fields, ['action', 'at', 'hash', 'id', 'outcome', 'subject']);
});

test('a refusal is in it, and in the chain', async () => {
  const refused = await makeToken('seen');
  assert.equal(refused.status, 409);
  await eventuallyPasses(5000, async () => {
    const [line] = (await read('/v1/audit?limit=1')).lines;
    assert.equal(line?.outcome, 'refused 409');
  });
  const { problem } = await verifyChain(served.shop.store, served.shop.actor.orgId);
  assert.equal(problem, undefined);
});

test('pages are newest first, whole, and end; another organization shows in none', async () => {
  const { orgId } = served.shop.actor;
  const stranger = newId();
  const row = { id: stranger, name: 'stranger', next_identifier: 0, created_at: 1 };
  await insertOrganization(served.shop.store.db, row);
  for (let count = 0; count < 12; count += 1) {
    await write(orgId, `mine ${count}`);
    await write(stranger, `theirs ${count}`);
  }
  const { lines: whole, next: none } = await read('/v1/audit?limit=1000');
  assert.equal(none, undefined);
  assert.ok(whole.length >= 14);
  assert.ok(!JSON.stringify(whole).includes('theirs'));
  const ids = whole.map((line) => line.id);
  assert.deepEqual(
    ids,
    Array.from(whole, (_, index) => whole.length - index),
  );
  const paged: Line[] = [];
  let pages = 0;
  for (let path: string | undefined = '/v1/audit?limit=5'; path !== undefined; pages += 1) {
    const page = await read(path);
    assert.ok(page.lines.length > 0 && page.lines.length <= 5);
    paged.push(...page.lines);
    path = page.next;
  }
  assert.equal(pages, Math.ceil(whole.length / 5));
  assert.deepEqual(paged, whole);
  await write(orgId, 'newer');
  const again = await read(`/v1/audit?limit=5&before=${ids[4]}`);
  assert.deepEqual(again.lines, whole.slice(5, 10), 'a page stays the same when lines come');
});

test('100 lines without a limit', async () => {
  for (let count = 0; count < 100; count += 1) await write(served.shop.actor.orgId, `${count}`);
  const { lines, next } = await read('/v1/audit');
  assert.equal(lines.length, 100);
  assert.match(next ?? '', /^\/v1\/audit\?limit=100&before=\d+$/);
  assert.deepEqual((await read('/v1/audit?before=1')).lines, []);
});

for (const query of ['limit=0', 'limit=1001', 'limit=x', 'limit=', 'before=0', 'before=-1']) {
  test(`${query} is a 400`, async () => {
    const answer = await get(`/v1/audit?${query}`);
    assert.equal(answer.status, 400);
    assert.match(await answer.text(), new RegExp(`\\\\"${query.split('=')[0]}\\\\" must be`));
  });
}

test('it wants the scope admin', async () => {
  const { db } = served.shop.store;
  const limited = await served.newToken();
  const scopes = JSON.stringify(['instances:write', 'snapshots:write', 'keys:write']);
  await db.updateTable('tokens').set({ scopes }).where('hash', '=', hashToken(limited)).execute();
  const headers = { authorization: `Bearer ${limited}` };
  const answer = await fetch(`${served.url}/v1/audit`, { headers });
  assert.equal(answer.status, 403);
});
