import { conflict } from '../domain/errors.ts';
import type { Db } from '../store/database.ts';
import { listPortsInUse } from '../store/instances.ts';

export interface PortRange {
  readonly from: number;
  readonly to: number;
}

/**
 * The lowest SSH port of the range that no instance holds and that is not in `avoid` (ports that turned out to be
 * in use by something else on the host). A unique index keeps two requests from taking the same one.
 */
export async function choosePort(
  db: Db,
  range: PortRange,
  avoid: ReadonlySet<number>,
): Promise<number> {
  const used = await listPortsInUse(db);
  for (let port = range.from; port <= range.to; port++) {
    if (!used.has(port) && !avoid.has(port)) return port;
  }
  throw conflict(
    `Every SSH port from ${range.from} to ${range.to} is in use. Delete an instance, or ask the operator to widen BERTH_SSH_PORTS.`,
  );
}
