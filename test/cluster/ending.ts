/** Ends what a killed incusd leaves running: guests, their monitors, dnsmasq, forkproxy. */

import { readFileSync } from 'node:fs';
import { allProcesses } from '../support/processes.ts';

/** A process that has ended by itself is as good. */
export function endProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

/** Everything that was started for this INCUS_DIR. The first process of a guest takes all others with it. */
export function endProcessesOf(folder: string): void {
  const helpers = allProcesses().filter(({ command }) => command.includes(`${folder}/`));
  const monitors = new Set(
    helpers.filter(({ command }) => command.startsWith('[lxc monitor]')).map(({ pid }) => pid),
  );
  for (const { pid } of allProcesses()) if (monitors.has(parentOf(pid))) endProcess(pid);
  for (const { pid } of helpers) endProcess(pid);
}

function parentOf(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/^PPid:\t(\d+)$/m.exec(status)?.[1] ?? 0);
  } catch {
    return 0;
  }
}
