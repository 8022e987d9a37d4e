import type { Db } from './database.ts';
import type { InstancePortRow } from './schema.ts';

/** The published ports of one instance, lowest first. */
export async function listPorts(db: Db, orgId: string, instanceId: string): Promise<number[]> {
  const rows = await db
    .selectFrom('instance_ports')
    .select('port')
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .orderBy('port')
    .execute();
  return rows.map((row) => row.port);
}

/** The published ports of every instance of the organization, by instance, lowest first. */
export async function listPortsByInstance(db: Db, orgId: string): Promise<Map<string, number[]>> {
  const rows = await db
    .selectFrom('instance_ports')
    .select(['instance_id', 'port'])
    .where('org_id', '=', orgId)
    .orderBy('port')
    .execute();
  return byInstance(rows);
}

/** The same for all organizations: for the monitor. */
export async function listAllPorts(db: Db): Promise<Map<string, number[]>> {
  const query = db.selectFrom('instance_ports').select(['instance_id', 'port']).orderBy('port');
  return byInstance(await query.execute());
}

function byInstance(rows: readonly { instance_id: string; port: number }[]): Map<string, number[]> {
  const groups = Map.groupBy(rows, (row) => row.instance_id);
  return new Map([...groups].map(([id, group]) => [id, group.map((row) => row.port)]));
}

/** The lowest of these ports that another instance has, of whatever organization: a host has each port once. */
export async function findTakenPort(
  db: Db,
  instanceId: string,
  ports: readonly number[],
): Promise<number | undefined> {
  if (ports.length === 0) return undefined;
  const row = await db
    .selectFrom('instance_ports')
    .select('port')
    .where('port', 'in', [...ports])
    .where('instance_id', '!=', instanceId)
    .orderBy('port')
    .executeTakeFirst();
  return row?.port;
}

/** False when the port is taken: a port is in the table once. */
export async function insertPort(db: Db, row: InstancePortRow): Promise<boolean> {
  const result = await db
    .insertInto('instance_ports')
    .values(row)
    .onConflict((conflict) => conflict.column('port').doNothing())
    .executeTakeFirst();
  return (result.numInsertedOrUpdatedRows ?? 0n) === 1n;
}

export async function deletePorts(
  db: Db,
  orgId: string,
  instanceId: string,
  ports: readonly number[],
): Promise<void> {
  if (ports.length === 0) return;
  await db
    .deleteFrom('instance_ports')
    .where('org_id', '=', orgId)
    .where('instance_id', '=', instanceId)
    .where('port', 'in', [...ports])
    .execute();
}
