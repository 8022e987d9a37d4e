import { chmodSync, closeSync, openSync } from 'node:fs';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { type SqliteDatabase, SqliteDialect, type SqliteStatement } from 'kysely';

const busyTimeoutMs = 5000;
const cachedStatements = 256;

/**
 * Opens the embedded database: WAL, and `synchronous=FULL`, so that a commit that returned is on the
 * disk (https://www.sqlite.org/pragma.html#pragma_synchronous).
 */
export function openSqliteDialect(path: string): SqliteDialect {
  makePrivateFile(path);
  const database = new DatabaseSync(path, {
    enableForeignKeyConstraints: true,
    timeout: busyTimeoutMs,
  });
  try {
    database.exec('PRAGMA journal_mode = WAL');
    database.exec('PRAGMA synchronous = FULL');
  } catch (error) {
    database.close();
    throw error;
  }
  return new SqliteDialect({ database: adapt(database) });
}

/** Kysely's SQLite dialect, spoken by `node:sqlite`; statements are prepared once. */
function adapt(database: DatabaseSync): SqliteDatabase {
  const statements = new Map<string, SqliteStatement>();
  return {
    close: () => {
      statements.clear();
      database.close();
    },
    prepare: (sql) => {
      // On a full disk SQLite has rolled back by itself; a second rollback would hide why.
      if (sql === 'rollback' && !database.isTransaction) return nothing;
      const known = statements.get(sql);
      if (known) return known;
      if (statements.size >= cachedStatements) statements.clear();
      const statement = adaptStatement(database.prepare(sql));
      statements.set(sql, statement);
      return statement;
    },
  };
}

const nothing: SqliteStatement = {
  reader: false,
  all: () => [],
  run: () => ({ changes: 0, lastInsertRowid: 0 }),
  iterate: () => [].values(),
};

function adaptStatement(statement: StatementSync): SqliteStatement {
  const values = (parameters: readonly unknown[]) => parameters as SQLInputValue[];
  return {
    reader: statement.columns().length > 0,
    all: (parameters) => statement.all(...values(parameters)),
    run: (parameters) => statement.run(...values(parameters)),
    iterate: (parameters) => statement.iterate(...values(parameters)),
  };
}

/**
 * A lock that ends with the process, however it ends: an exclusive transaction on a file of its own,
 * which SQLite holds by a kernel file lock. Undefined when another process holds it after `waitMs`.
 */
export function takeFileLock(path: string, waitMs: number): { release: () => void } | undefined {
  makePrivateFile(path);
  const database = new DatabaseSync(path, { timeout: waitMs });
  try {
    // A journal in a file would take room, which a full disk does not have.
    database.exec('PRAGMA journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
    return { release: () => database.close() };
  } catch (error) {
    database.close();
    if ((error as { errcode?: number }).errcode === 5) return undefined;
    throw error;
  }
}

/** SQLite gives its journals the mode of the database, so a file made for the owner alone keeps all of it private. */
function makePrivateFile(path: string): void {
  closeSync(openSync(path, 'a', 0o600));
  chmodSync(path, 0o600);
}
