/** Lines from before there was a chain have no hash; nothing can be put among them, in front of them or taken away. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, test } from 'node:test';
import { Kysely } from 'kysely';
import { Migrator } from 'kysely/migration';
import { audit, readAuditPage } from '../../src/services/audit.ts';
import { verifyChain, verifyLogs } from '../../src/services/audit-verification.ts';
import { openStore, type Store } from '../../src/store/database.ts';
import { createTables } from '../../src/store/migrations/0001-create-tables.ts';
import { deleteOrganization, insertOrganization } from '../../src/store/organizations.ts';
import { openSqliteDialect } from '../../src/store/sqlite.ts';

let folder: string;
let store: Store;

/** A database of the first release, with three lines of "old" and one of an organization that is gone; then updated. */
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'berth-audit-'));
  const path = join(folder, 'berth.db');
  const db = new Kysely<unknown>({ dialect: openSqliteDialect(path) });
  const getMigrations = async () => ({ '0001-create-tables': createTables });
  const { error } = await new Migrator({ db, provider: { getMigrations } }).migrateToLatest();
  await db.destroy();
  assert.equal(error, undefined);
  execute(
    `insert into organizations (id, name, next_identifier, created_at) values ('old', 'old', 0, 1)`,
  );
  for (const org of ['old', 'gone', 'old', 'old']) execute(lineOf(org));
  store = await openStore(`sqlite:${path}`);
  await insertOrganization(store.db, { id: 'new', name: 'new', next_identifier: 0, created_at: 2 });
  for (const org of ['old', 'new', 'old', 'new']) await write(org);
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true, force: true });
});

function execute(statement: string): void {
  const database = new DatabaseSync(join(folder, 'berth.db'));
  database.exec(statement);
  database.close();
}

const lineOf = (org: string): string =>
  `insert into audit_log (at, org_id, action, subject, outcome) values (1, '${org}', 'old.line', '', 'done')`;

/** A line without a hash, as one from before the chain would look. */
const forged = (org: string, id: number, position: number): string =>
  `insert into audit_log (id, at, org_id, action, subject, outcome, position)
   values (${id}, 1, '${org}', 'forged.line', '', 'done', ${position})`;

const write = (orgId: string): Promise<void> =>
  store.transaction((tx) =>
    audit(tx, { orgId, tokenId: null, requestId: null }, 2, {
      action: 'new.line',
      subject: '',
      outcome: 'done',
    }),
  );

async function assertBrokenAt(org: string, line: number): Promise<void> {
  const { problem } = await verifyChain(store, org);
  assert.match(problem ?? 'nothing was found', new RegExp(`^Line ${line} `));
}

test('old lines are left out of the chain, which goes on behind them', async () => {
  const logs = await verifyLogs(store);
  assert.deepEqual(
    logs.map(({ organization, lines, problem }) => [organization, lines, problem]),
    [
      ['old', 2, undefined],
      ['new', 2, undefined],
      ['gone', 0, undefined],
    ],
  );
});

test('old lines and new ones are counted in one row', async () => {
  const page = await readAuditPage(store.db, 'old', { limit: 3 });
  assert.deepEqual(
    page.lines.map(({ number, action }) => `${number} ${action}`),
    ['5 new.line', '4 new.line', '3 old.line'],
  );
  assert.equal(page.before, 3);
  const next = await readAuditPage(store.db, 'old', { limit: 3, before: 3 });
  assert.deepEqual([next.lines.map(({ number }) => number), next.before], [[2, 1], undefined]);
});

test('a line in front of a log that always had the chain is found', async () => {
  execute(forged('new', -5, 0));
  await assertBrokenAt('new', 1);
});

test('it is found also when every line behind it gives way', async () => {
  execute(`update audit_log set position = -position - 1 where org_id = 'new'`);
  execute(`update audit_log set position = -position where org_id = 'new'`);
  execute(forged('new', -5, 1));
  execute(`update organizations set audit_count = audit_count + 1 where id = 'new'`);
  await assertBrokenAt('new', 1);
});

test('one line more without a hash than there were is found', async () => {
  execute(`update audit_log set position = -position - 1 where org_id = 'old'`);
  execute(`update audit_log set position = -position where org_id = 'old'`);
  execute(forged('old', -5, 1));
  await assertBrokenAt('old', 4);
});

test('it is found also when the number of old lines was raised with it', async () => {
  execute(`update audit_log set position = -position - 1 where org_id = 'old'`);
  execute(`update audit_log set position = -position where org_id = 'old'`);
  execute(forged('old', -5, 1));
  execute(`update organizations set audit_count = 6, audit_before = 4 where id = 'old'`);
  await assertBrokenAt('old', 5);
});

for (const line of [1, 2, 3]) {
  test(`old line ${line} taken away is found`, async () => {
    execute(`delete from audit_log where org_id = 'old' and position = ${line}`);
    await assertBrokenAt('old', line);
  });
}

test('old lines taken away from a log that has no others are found', async () => {
  execute(`delete from audit_log where org_id = 'old' and position > 2`);
  await assertBrokenAt('old', 3);
});

test('a line in front of the log of a deleted organization is found', async () => {
  await deleteOrganization(store.db, 'new');
  assert.equal((await verifyChain(store, 'new')).problem, undefined);
  execute(`update audit_log set position = -position - 1 where org_id = 'new'`);
  execute(`update audit_log set position = -position where org_id = 'new'`);
  execute(forged('new', -5, 1));
  await assertBrokenAt('new', 2);
});

test('a line keeps its number when one before it is gone: nothing is counted', async () => {
  execute(`delete from audit_log where org_id = 'old' and position = 2`);
  const { lines } = await readAuditPage(store.db, 'old', { limit: 10 });
  assert.deepEqual(
    lines.map(({ number }) => number),
    [5, 4, 3, 1],
  );
});
