/** Brings the sshd of an instance up, or finds out why it does not come up. */

import { join } from 'node:path';
import { EngineError, type MachineSpec } from '../engine.ts';
import type { Limits } from './cgroups.ts';
import type { Host } from './host.ts';
import { diagnose, end, type LaunchRequest, launch, type Running } from './launch.ts';
import { repairMountPoints } from './mount-points.ts';
import { isPortFree, waitForBanner } from './network.ts';
import { descendantsOf, isAlive, listensOn } from './processes.ts';
import { addressFor } from './published-ports.ts';
import { writeSystemFiles } from './system-files.ts';

const START_TIMEOUT_MS = 10_000;
const BELIEVED_AFTER_MS = 1_000;

/** @throws EngineError `port_taken`, `unavailable` or `failed`. */
export async function startSshd(
  request: LaunchRequest,
  host: Host,
  options: { readonly allowUnconfinedShells: boolean },
): Promise<Running> {
  if (!(await isPortFree(request.endpoint))) throw portTaken(request.endpoint.port);
  if (host.isolation) repairMountPoints(join(request.instance, 'disk'), host.users.guest);
  const { hostname, endpoint } = request;
  const address = host.ownNetwork ? '127.0.0.1' : addressFor(endpoint.port);
  await writeSystemFiles(request.instance, host, { ...options, hostname, address });
  return launch(request, host);
}

/** Returns when sshd answers and all that runs is within its limits; what does not get that far leaves nothing. */
export async function bringUp(
  running: Running,
  request: LaunchRequest,
  host: Host,
  { machine, limits }: { readonly machine: MachineSpec; readonly limits: Limits },
): Promise<void> {
  try {
    await limits.hold(running, machine);
    await waitUntilItAnswers(running, request, host);
    await limits.takeIn(running);
  } catch (error) {
    if (!isAlive(running.launcher)) await limits.remove(running.ref);
    throw error;
  }
}

/** Returns when sshd has sent its banner; whatever does not get that far is ended. */
async function waitUntilItAnswers(
  running: Running,
  request: LaunchRequest,
  host: Host,
): Promise<void> {
  const { pid } = running.launcher;
  const answerer = {
    isAlive: () => isAlive(running.launcher),
    isListening: believing(() =>
      listensOn(running.endpoint.port, [pid, ...descendantsOf(pid).map((stat) => stat.pid)]),
    ),
  };
  const outcome = await waitForBanner(running.endpoint, answerer, START_TIMEOUT_MS);
  if (outcome === 'answered') return;
  await end(running);
  if (!(await isPortFree(running.endpoint))) throw portTaken(running.endpoint.port);
  const detail = await diagnose(request, host);
  if (outcome === 'died') {
    throw new EngineError('failed', 'The instance ended while it was started.', { detail });
  }
  throw new EngineError('timeout', 'The instance did not answer on its SSH port in time.', {
    detail,
  });
}

/**
 * Whose the listener is cannot be seen while a sandbox is being set up, and on some systems never. So what stays
 * hidden counts after a while: an sshd that found its port taken has ended by then.
 */
function believing(look: () => 'yes' | 'no' | 'hidden'): () => boolean {
  let hiddenSince: number | undefined;
  return () => {
    const found = look();
    if (found !== 'hidden') hiddenSince = undefined;
    else hiddenSince ??= performance.now();
    const hiddenMs = hiddenSince === undefined ? 0 : performance.now() - hiddenSince;
    return found === 'yes' || hiddenMs > BELIEVED_AFTER_MS;
  };
}

function portTaken(port: number): EngineError {
  return new EngineError('port_taken', `Port ${port} is in use by something else on this host.`);
}
