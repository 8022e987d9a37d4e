/** Whatever is done to the lines of the audit log by hand is found. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { chainHash } from '../../src/domain/audit-chain.ts';
import { newId } from '../../src/domain/ids.ts';
import { audit } from '../../src/services/audit.ts';
import { verifyChain } from '../../src/services/audit-verification.ts';
import type { Actor } from '../../src/services/context.ts';
import { openStore, type Store } from '../../src/store/database.ts';
import { insertOrganization } from '../../src/store/organizations.ts';

let folder: string;
let store: Store;
let actor: Actor;
let other: Actor;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'berth-audit-'));
  store = await openStore(`sqlite:${join(folder, 'berth.db')}`);
  actor = await makeActor('acme');
  other = await makeActor('zenith');
  for (let count = 1; count <= 5; count += 1) {
    await write(actor, `line ${count}`);
    await write(other, `theirs ${count}`);
  }
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true, force: true });
});

async function makeActor(name: string): Promise<Actor> {
  const id = newId();
  await insertOrganization(store.db, { id, name, next_identifier: 0, created_at: 1 });
  const who = { tokenId: `token of ${name}`, userId: '', orgId: id, orgName: name };
  return { ...who, email: '', scopes: ['admin'], requestId: 'request' };
}

const write = (who: Actor, subject: string): Promise<void> =>
  store.transaction((tx) =>
    audit(tx, who, 1_763_600_000_000, { action: 'test.write', subject, outcome: 'done' }),
  );

/** The ids of the organization's lines, oldest first. */
async function ids(): Promise<number[]> {
  const rows = await store.db
    .selectFrom('audit_log')
    .select('id')
    .where('org_id', '=', actor.orgId)
    .orderBy('id')
    .execute();
  return rows.map((row) => row.id);
}

async function id(line: number): Promise<number> {
  return (await ids())[line - 1] ?? Number.NaN;
}

const change = async (line: number, values: Record<string, string | number | null>) => {
  const where = await id(line);
  await store.db.updateTable('audit_log').set(values).where('id', '=', where).execute();
};

const remove = async (line: number) => {
  const where = await id(line);
  await store.db.deleteFrom('audit_log').where('id', '=', where).execute();
};

const verdict = () => verifyChain(store, actor.orgId);

/** What was done is found at that line, and the other organization's log is none the worse. */
async function assertBrokenAt(line: number): Promise<void> {
  const { problem, lines } = await verdict();
  assert.match(problem ?? 'nothing was found', new RegExp(`^Line ${line} `));
  assert.equal(lines, line - 1, 'the lines before it are sound');
  assert.equal((await verifyChain(store, other.orgId)).problem, undefined);
}

test('what was written is sound, and the head moves with every line', async () => {
  const before = await verdict();
  assert.deepEqual([before.lines, before.problem], [5, undefined]);
  await write(actor, 'line 6');
  const after = await verdict();
  assert.deepEqual([after.lines, after.problem], [6, undefined]);
  assert.notEqual(after.head, before.head);
  assert.match(after.head, /^[0-9a-f]{64}$/);
});

for (const [field, value] of Object.entries({
  at: 1,
  token_id: null,
  request_id: 'another',
  action: 'test.other',
  subject: 'another',
  outcome: 'refused',
  hash: 'f'.repeat(64),
  position: 9,
})) {
  test(`a changed ${field} is found`, async () => {
    await change(3, { [field]: value });
    await assertBrokenAt(3);
  });
}

/** Changes a line and gives it the hash that fits: that of a forger who knows how it is made. */
async function forge(line: number): Promise<void> {
  const row = (await store.db.selectFrom('audit_log').selectAll().execute()).find(
    ({ subject }) => subject === `line ${line}`,
  );
  const before = (await store.db.selectFrom('audit_log').selectAll().execute()).find(
    ({ subject }) => subject === `line ${line - 1}`,
  );
  assert.ok(row && before);
  const { at, org_id: orgId, token_id: tokenId, request_id: requestId, action, outcome } = row;
  const forged = { at, orgId, tokenId, requestId, action, subject: 'forged', outcome };
  await change(line, { subject: 'forged', hash: chainHash(before.hash ?? '', line, forged) });
}

test('a line changed together with its hash is found by the next one', async () => {
  await forge(3);
  await assertBrokenAt(4);
});

test('the newest line changed together with its hash is found by the head', async () => {
  await forge(5);
  assert.match((await verdict()).problem ?? '', /^Line 5 is not the newest/);
});

test('a line given to another organization is found in both', async () => {
  await change(3, { org_id: other.orgId, position: 6 });
  assert.match((await verdict()).problem ?? '', /^Line 3 /);
  assert.match((await verifyChain(store, other.orgId)).problem ?? '', /^Line [34] /);
});

test('a line taken out of the middle is found', async () => {
  await remove(3);
  await assertBrokenAt(3);
});

test('the first line taken out is found', async () => {
  await remove(1);
  await assertBrokenAt(1);
});

test('the newest lines taken away are found', async () => {
  await remove(5);
  await assertBrokenAt(5);
  await remove(4);
  await assertBrokenAt(4);
});

test('a log that was emptied is found', async () => {
  for (let count = 0; count < 5; count += 1) await remove(1);
  await assertBrokenAt(1);
});

test('two lines in each other`s place are found', async () => {
  const [second, fourth] = [await id(2), await id(4)];
  const move = (from: number, to: number) =>
    store.db.updateTable('audit_log').set({ id: to }).where('id', '=', from).execute();
  await move(second, -1);
  await move(fourth, second);
  await move(-1, fourth);
  await assertBrokenAt(2);
});

async function putIn(hash: string | null, before: number): Promise<void> {
  const copied = await store.db
    .selectFrom('audit_log')
    .selectAll()
    .where('id', '=', await id(2))
    .executeTakeFirstOrThrow();
  // Ids of both organizations alternate, so theirs give way for a line in between.
  const free = (await id(before)) - 1;
  await store.db.deleteFrom('audit_log').where('id', '=', free).execute();
  for (const line of [5, 4, 3, 2, 1].filter((one) => one >= before)) {
    await change(line, { position: line + 1 });
  }
  await store.db
    .insertInto('audit_log')
    .values({ ...copied, id: free, hash, position: before })
    .execute();
}

test('a line put in is found, with the hash of another or with none', async () => {
  await putIn('f'.repeat(64), 4);
  assert.match((await verdict()).problem ?? '', /^Line 4 /);
});

test('a line without a hash among those that have one is found', async () => {
  await putIn(null, 4);
  assert.match((await verdict()).problem ?? '', /^Line 4 /);
});

test('a line put in at the end is found, also with a sound hash', async () => {
  await write(actor, 'line 6');
  const end = await store.db
    .selectFrom('organizations')
    .select(['audit_count', 'audit_head'])
    .where('id', '=', actor.orgId)
    .executeTakeFirstOrThrow();
  await write(actor, 'line 7');
  await store.db.updateTable('organizations').set(end).where('id', '=', actor.orgId).execute();
  assert.match((await verdict()).problem ?? '', /^Line 6 is not the newest/);
});

test('transactions at once leave one chain, and one that fails leaves nothing', async () => {
  const failing = store.transaction(async (tx) => {
    await audit(tx, actor, 1, { action: 'test.write', subject: 'never', outcome: 'done' });
    throw new Error('on purpose');
  });
  const writing = Array.from({ length: 40 }, (_, index) => write(actor, `at once ${index}`));
  await Promise.all([assert.rejects(failing, /on purpose/), ...writing]);
  const { lines, problem } = await verdict();
  assert.deepEqual([lines, problem], [45, undefined]);
});

test('two that write in turn leave one chain', async () => {
  const second = await openStore(`sqlite:${join(folder, 'berth.db')}`);
  const entry = { action: 'test.write', subject: 'second', outcome: 'done' };
  const writeThere = () => second.transaction((tx) => audit(tx, actor, 1, entry));
  for (let count = 0; count < 20; count += 1) {
    await write(actor, `first ${count}`);
    await writeThere();
  }
  await second.close();
  const { lines, problem } = await verdict();
  assert.deepEqual([lines, problem], [45, undefined]);
});

test('half a character does not break the chain', async () => {
  await write(actor, 'broken \ud800 half');
  assert.equal((await verdict()).problem, undefined);
});
