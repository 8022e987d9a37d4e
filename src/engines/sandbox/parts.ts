/** What a sandbox engine is made of: found out and opened once, when it opens. */

import { type Limits, openLimits } from './cgroups.ts';
import { type DiskQuotas, openDiskQuotas } from './disk-quotas.ts';
import { type Host, probeHost } from './host.ts';
import { type Layout, openLayout } from './layout.ts';
import type { SandboxOptions } from './options.ts';

export interface Parts {
  readonly host: Host;
  readonly layout: Layout;
  readonly limits: Limits;
  readonly quotas: DiskQuotas;
}

export async function openParts(options: SandboxOptions): Promise<Parts> {
  const host = await probeHost(options);
  const layout = await openLayout(options.dataDir, host.users);
  const limits = await openLimits(options.limits, layout, options.log);
  const quotas = await openDiskQuotas(layout, host, options.log);
  return { host, layout, limits, quotas };
}
