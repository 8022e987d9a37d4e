/** `npm run quickstart -- --engine incus`: everything that the Incus engine needs, before the service starts. */
import { dirname } from 'node:path';
import { describeLeftovers, setUpIncus } from '../src/admin-engine.ts';
import type { Environment } from '../src/config.ts';
import { keepBridgeFilter } from './bridge-filter.ts';
import { ensureIncusDaemon, hasSystemd, socketOf, systemIncusDir } from './incus-daemon.ts';
import { ensureIncusPackages } from './incus-packages.ts';
import { keepKernelLimits } from './kernel-limits.ts';

type Say = (line?: string) => void;

const socketScheme = 'unix:';

/** The settings that go with it; whatever is set already stays. */
export const incusEnvironment = (env: Environment): Environment => ({
  BERTH_INCUS_ON_EXIT: 'stop',
  // A trial on a modest machine: disks are copy-on-write and seldom full, and the pool is half of what is free.
  BERTH_OVERCOMMIT: 'memory=2,disk=2',
  BERTH_INCUS_URL: `${socketScheme}${socketOf(env.INCUS_DIR ?? systemIncusDir)}`,
});

/**
 * Installs, starts and sets up what is missing; a second run changes nothing. Resolves with lines for the end: what
 * goes on running and how one stops it. Undefined when it cannot be done here; then it has said what to do.
 */
export async function prepareIncus(env: Environment, say: Say): Promise<string[] | undefined> {
  const { BERTH_INCUS_URL: url = '' } = env;
  // A server elsewhere is set up by who runs it; `berth admin engine check` says what it lacks.
  if (!url.startsWith(socketScheme)) return [];
  const timed = timing(say);
  if (!ensureIncusPackages(timed)) return undefined;
  if (process.getuid?.() !== 0) {
    say('Setting up Incus takes root: run this again with sudo.');
    return undefined;
  }
  const incusDir = dirname(url.slice(socketScheme.length));
  const daemon = await ensureIncusDaemon({ incusDir, say: timed });
  keepKernelLimits(timed);
  keepBridgeFilter(timed);
  await setUpIncus(env, incusDir, timed);
  timed('Incus is ready.');
  const leftovers = await describeLeftovers(env);
  if (leftovers !== undefined) say(`Note: ${leftovers}`);
  return [`Incus goes on running (${incusDir}); ${stopLine(incusDir, daemon.pid)}`];
}

/** The first run takes a minute or two: every line says how much of it is over. */
function timing(say: Say): (line: string) => void {
  const startedAt = performance.now();
  return (line) => {
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(0).padStart(3);
    say(`[${seconds} s] ${line}`);
  };
}

function stopLine(incusDir: string, pid: number | undefined): string {
  if (pid !== undefined) return `kill -s PWR ${pid} stops it.`;
  return incusDir === systemIncusDir && hasSystemd()
    ? 'systemctl stop incus incus.socket stops it.'
    : `INCUS_DIR=${incusDir} incus admin shutdown stops it.`;
}
