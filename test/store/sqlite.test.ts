import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { openStore } from '../../src/store/database.ts';
import { takeFileLock } from '../../src/store/sqlite.ts';
import { describeStore } from './store-contract.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-store-'));
after(() => rmSync(folder, { recursive: true, force: true }));

describeStore('SQLite', async () => {
  const store = await openStore(`sqlite:${join(folder, 'contract.db')}`);
  return { store, cleanup: () => store.close() };
});

test('commits are durable: write-ahead log, synchronous=FULL, foreign keys', async () => {
  const store = await openStore(`sqlite:${join(folder, 'pragmas.db')}`);
  const read = async (name: string) => {
    const { rows } = await store.db.executeQuery<Record<string, unknown>>({
      sql: `PRAGMA ${name}`,
      parameters: [],
      query: { kind: 'RawNode', sqlFragments: [`PRAGMA ${name}`], parameters: [] },
      queryId: { queryId: name },
    });
    return Object.values(rows[0] ?? {})[0];
  };
  assert.deepEqual(
    [await read('journal_mode'), await read('synchronous'), await read('foreign_keys')],
    ['wal', 2, 1],
  );
  await store.close();
});

test('a second start finds the tables as they are; the file is for its owner alone', async () => {
  const path = join(folder, 'twice.db');
  for (let start = 0; start < 2; start++) await (await openStore(`sqlite:${path}`)).close();
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('two programs that start at once both find the tables', async () => {
  const module = join(import.meta.dirname, '../../src/store/database.ts');
  const url = `sqlite:${join(folder, 'together.db')}`;
  const script = `const { openStore } = await import('${module}'); await (await openStore('${url}')).close();`;
  const start = () => promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
  await Promise.all([start(), start(), start()]);
});

test('a database of a newer program is refused, and says so', async () => {
  const path = join(folder, 'newer.db');
  await (await openStore(`sqlite:${path}`)).close();
  const database = new DatabaseSync(path);
  database.exec("INSERT INTO kysely_migration VALUES ('9999-the-future', '2099')");
  database.close();
  await assert.rejects(openStore(`sqlite:${path}`), /newer Berth/);
});

test('a file lock is held once, and free after its release', () => {
  const path = join(folder, 'a.lock');
  const lock = takeFileLock(path, 10);
  assert.ok(lock);
  assert.equal(takeFileLock(path, 10), undefined);
  lock.release();
  const again = takeFileLock(path, 10);
  assert.ok(again);
  again.release();
});
