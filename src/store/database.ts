import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { Kysely, sql } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';
import { explainStoreError, isStorageFull } from './errors.ts';
import { createTables } from './migrations/0001-create-tables.ts';
import { wholeContract } from './migrations/0002-whole-contract.ts';
import { placing } from './migrations/0003-placing.ts';
import { openReserve, type Reserve } from './reserve.ts';
import type { Schema } from './schema.ts';
import { openSqliteDialect, takeFileLock } from './sqlite.ts';

/** A connection or the transaction that is open on it: what every store function takes. */
export type Db = Kysely<Schema>;

export interface Store {
  readonly db: Db;
  /** Runs `work` in one transaction; one durable commit when it resolves, none when it rejects. */
  transaction<T>(work: (tx: Db) => Promise<T>): Promise<T>;
  /** The same for work that frees space: on a full disk it may use what is kept in reserve for it. */
  freeingTransaction<T>(work: (tx: Db) => Promise<T>): Promise<T>;
  /** Rejects when the database does not answer. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/** Forward only, in this order, never edited once released. */
const migrations: Readonly<Record<string, Migration>> = {
  '0001-create-tables': createTables,
  '0002-whole-contract': wholeContract,
  '0003-placing': placing,
};

const migrationWaitMs = 15_000;

/**
 * Opens the database that `url` names (`sqlite:/path/to/file`), makes or updates its tables, and refuses one
 * that a newer program has updated. `warn` hears of a disk so full that the reserve was needed for that.
 */
export async function openStore(
  url: string,
  warn: (message: string) => void = () => {},
): Promise<Store> {
  const path = sqlitePath(url);
  mkdirSync(dirname(path), { recursive: true, mode: 0o711 });
  const reserve = openReserve(`${path}.reserve`);
  const db = await openWithReserve(path, reserve, warn);
  const transaction: Store['transaction'] = async (work) => {
    try {
      return await db.transaction().execute(work);
    } catch (error) {
      throw explainStoreError(error);
    }
  };
  return {
    db,
    transaction,
    freeingTransaction: async (work) => {
      try {
        return await db.transaction().execute(work);
      } catch (error) {
        if (!isStorageFull(error) || !reserve.release()) throw explainStoreError(error);
        return transaction(work);
      }
    },
    ping: async () => void (await sql`select 1`.execute(db)),
    close: () => db.destroy(),
  };
}

async function openWithReserve(
  path: string,
  reserve: Reserve,
  warn: (message: string) => void,
): Promise<Db> {
  try {
    const db = await openMigrated(path);
    reserve.keep();
    return db;
  } catch (error) {
    if (!isStorageFull(error) || !reserve.release()) throw error;
    warn(
      'the disk is full: the space kept for the database is in use; delete instances or snapshots',
    );
    return openMigrated(path);
  }
}

async function openMigrated(path: string): Promise<Db> {
  const db = new Kysely<Schema>({ dialect: openSqliteDialect(path) });
  try {
    await migrate(db, path);
    return db;
  } catch (error) {
    await db.destroy();
    throw error;
  }
}

function sqlitePath(url: string): string {
  if (url.startsWith('sqlite:') && url.length > 7) return url.slice(7);
  throw new Error('BERTH_DATABASE_URL must look like sqlite:/path/to/berth.db.');
}

async function migrate(db: Db, path: string): Promise<void> {
  const lock = takeFileLock(`${path}.migrate-lock`, migrationWaitMs);
  if (!lock) throw new Error('Another process is updating the database; try again in a minute.');
  try {
    const migrator = new Migrator({ db, provider: { getMigrations: async () => migrations } });
    await refuseNewer(migrator, db);
    const { error } = await migrator.migrateToLatest();
    if (error) throw error;
  } finally {
    lock.release();
  }
}

async function refuseNewer(migrator: Migrator, db: Db): Promise<void> {
  await migrator.getMigrations();
  const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
  if (!tables.some((table) => table.name === 'kysely_migration')) return;
  const done = await db
    .withTables<{ kysely_migration: { name: string } }>()
    .selectFrom('kysely_migration')
    .select('name')
    .execute();
  const unknown = done.find((row) => !(row.name in migrations));
  if (!unknown) return;
  throw new Error(
    `This database was updated by a newer Berth (it has "${unknown.name}"). Run that version, or restore a backup.`,
  );
}
