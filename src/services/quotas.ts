import { conflict } from '../domain/errors.ts';
import type { Db } from '../store/database.ts';
import { lockQuotas, type QuotaLimits, type QuotaUse, sumUse } from '../store/quotas.ts';

/** What a request would add. Disks count whole: the lasting and the ephemeral one together. */
export interface Growth {
  readonly instances?: number;
  readonly cpuCores?: number;
  readonly diskGb?: number;
  readonly snapshots?: number;
}

/** What a new instance adds. */
export const growthOfInstance = (size: {
  readonly cpuCores: number;
  readonly diskSizeGb: number;
  readonly ephemeralDiskGb: number;
}): Growth & { readonly cpuCores: number; readonly diskGb: number } => ({
  instances: 1,
  cpuCores: size.cpuCores,
  diskGb: size.diskSizeGb + size.ephemeralDiskGb,
});

/**
 * Throws the 409 when the organization would have more than its quotas allow. To be called in the
 * transaction that writes the rows, before it does: of requests at the same moment the second sees the first.
 */
export async function requireQuota(tx: Db, orgId: string, growth: Growth): Promise<void> {
  const limits = await lockQuotas(tx, orgId);
  if (!limits) return;
  const use = await sumUse(tx, orgId);
  requireRoom('instances', limits, use, growth.instances);
  requireRoom('cpu_cores', limits, use, growth.cpuCores);
  requireRoom('disk_gb', limits, use, growth.diskGb);
  requireRoom('snapshots', limits, use, growth.snapshots);
}

/** What does not grow is never refused: an organization that is over a lowered quota may still shrink. */
function requireRoom(name: keyof QuotaLimits, limits: QuotaLimits, use: QuotaUse, asked = 0): void {
  const limit = limits[name];
  if (asked <= 0 || limit === null || use[name] + asked <= limit) return;
  throw conflict(
    `The quota "${name}" of your organization does not allow this: its limit is ${limit}, ${use[name]} in use, ${asked} more asked for. Delete what you no longer need, or ask the operator to raise it.`,
  );
}
