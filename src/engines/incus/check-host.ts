/** What can be seen only on the machine that Incus runs on. */

import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { promisify } from 'node:util';
import { type Finding, good, missing, weak } from '../../domain/findings.ts';
import { bridgeFilterModule, bridgeFilterState, bridgeFilterSwitch } from './bridge-filter.ts';
import { guardChains } from './bridge-guard.ts';
import type { IncusClient } from './client.ts';
import { isLocal } from './endpoint.ts';
import { kernelLimits, lowLimits } from './kernel-limits.ts';
import { readBridge } from './network.ts';
import type { IncusOptions } from './options.ts';
import { type PoolFacts, poolPath } from './setup.ts';

const run = promisify(execFile);
const gib = 2 ** 30;
/** Of one container; each has a range of its own. */
const fewestIds = 65_536;

/** The rules of bridge-guard.ts; only root can see them. */
export async function checkGuard(client: IncusClient, options: IncusOptions): Promise<Finding[]> {
  if (!isLocal(options) || process.getuid?.() !== 0) return [];
  const bridge = await readBridge(client, options.network).catch(() => undefined);
  if (!bridge) return [];
  const topic = 'bridge guard';
  try {
    for (const chain of guardChains(bridge))
      await run('nft', ['list', 'chain', ...chain], { timeout: 10_000 });
    return [good(topic, 'instances cannot speak with the hardware address of another')];
  } catch {
    const advice = 'As root: berth admin engine guard | nft -f - (docs/incus.md: at each boot)';
    const found = 'an instance can take over the hardware address of another, or end its lease';
    return [weak(topic, found, advice)];
  }
}

export const checkHost = (): Finding[] => [
  checkLxcfs(),
  checkIds(),
  checkLimits(),
  checkBridgeFilter(bridgeFilterState()),
];

export function checkBridgeFilter(state: ReturnType<typeof bridgeFilterState>): Finding {
  const topic = 'bridge filter';
  if (state === 'on') return good(topic, 'the kernel lets Incus filter addresses');
  const found = 'Incus starts no instance, because the kernel does not let it filter addresses';
  const advice =
    state === 'missing'
      ? `As root, and in /etc/modules-load.d: modprobe ${bridgeFilterModule}`
      : `As root, and in /etc/sysctl.d: ${bridgeFilterSwitch} has to be 1`;
  return missing(topic, found, advice);
}

function checkLimits(): Finding {
  const low = lowLimits();
  if (low.length === 0) return good('kernel limits', 'enough for many containers');
  const found = `the defaults, with which about a dozen containers boot: ${low.join(', ')}`;
  const lines = low.map((name) => `${name}=${kernelLimits[name]}`).join(' ');
  return weak('kernel limits', found, `As root, and in /etc/sysctl.d: sysctl -w ${lines}`);
}

function checkLxcfs(): Finding {
  const topic = 'lxcfs';
  if (existsSync('/var/lib/lxcfs/proc/meminfo') || existsSync('/var/lib/incus-lxcfs/proc/meminfo'))
    return good(topic, 'runs');
  return weak(
    topic,
    'does not run: instances see the memory and processors of the host',
    'Start it (systemctl start lxcfs), then stop and start the instances that run.',
  );
}

function checkIds(): Finding {
  const topic = 'user ids';
  const counts = ['/etc/subuid', '/etc/subgid'].map(idsOfRoot);
  if (counts.every((count) => count >= fewestIds))
    return good(topic, `${Math.min(...counts)} for containers`);
  return missing(
    topic,
    'root has no range of subordinate ids for containers',
    'Add the line root:1000000:1000000000 to /etc/subuid and /etc/subgid, then restart Incus.',
  );
}

function idsOfRoot(path: string): number {
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  const counts = [...text.matchAll(/^(?:root|0):\d+:(\d+)$/gm)].map((match) => Number(match[1]));
  return Math.max(0, ...counts);
}

/** The pool's file grows while it is written to: what it calls free must be free where it is. */
export async function checkReserve(
  client: IncusClient,
  name: string,
  poolFree: number,
): Promise<Finding[]> {
  const { config } = await client.get<PoolFacts>(poolPath(name));
  const { source = '' } = config;
  if (!source.endsWith('.img') || !existsSync(source)) return [];
  const { bavail, bsize } = await statfs(source);
  const free = bavail * bsize;
  if (free >= poolFree) return [];
  const found = `the pool's file can grow by ${(free / gib).toFixed(1)} GiB, and no more`;
  return [weak('space of the host', found, `Make room on the file system of ${source}.`)];
}
