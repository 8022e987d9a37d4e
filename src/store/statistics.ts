/** Numbers for the operator, over all organizations: counts alone, and nothing of any one of them. */
import type { Db } from './database.ts';

export type Counts = Readonly<Record<string, number>>;

export async function countInstances(db: Db): Promise<Counts> {
  const rows = await db
    .selectFrom('instances')
    .select((eb) => ['status as label', eb.fn.countAll<number>().as('count')])
    .where('deleted_at', 'is', null)
    .groupBy('status')
    .execute();
  return toCounts(rows);
}

export async function countSnapshots(db: Db): Promise<Counts> {
  const rows = await db
    .selectFrom('snapshots')
    .select((eb) => ['status as label', eb.fn.countAll<number>().as('count')])
    .where('deleted_at', 'is', null)
    .groupBy('status')
    .execute();
  return toCounts(rows);
}

export async function countOperations(db: Db): Promise<Counts> {
  const rows = await db
    .selectFrom('operations')
    .select((eb) => ['state as label', eb.fn.countAll<number>().as('count')])
    .groupBy('state')
    .execute();
  return toCounts(rows);
}

const toCounts = (rows: readonly { label: string; count: number }[]): Counts =>
  Object.fromEntries(rows.map(({ label, count }) => [label, Number(count)]));
