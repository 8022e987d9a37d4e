/**
 * Holds every process of a pid namespace still while a piece of work is done, and lets them go on
 * afterwards, whatever happens: an error, a deadline, or the end of this very process.
 *
 * The last one needs somebody else. Before the first SIGSTOP a guard is started: a small shell script that
 * waits on a pipe. It is told "done" when all is well; when the pipe closes without a word, because the
 * service was killed, it continues everybody.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { EngineError } from '../engine.ts';
import { CLEAN_ENVIRONMENT, type Identity } from './commands.ts';
import { membersOf, type ProcessStat, pidNamespaceOf, signal } from './processes.ts';

const PAUSE_TIMEOUT_MS = 5_000;
const KERNEL_WAIT_MS = 250;
const RETRY_INTERVAL_MS = 1;

/** $1 is process 1 of the namespace; -ef compares the namespaces that the links lead to. */
const GUARD_SCRIPT = `
read -r word && exit 0
for process in /proc/[0-9]*; do
  [ "$process/ns/pid" -ef "/proc/$1/ns/pid" ] && kill -CONT "\${process#/proc/}"
done 2>/dev/null
`;

/** @throws EngineError `failed` when the processes multiply faster than they can be stopped. */
export async function whilePaused<T>(
  firstPid: number,
  dropTo: Identity | undefined,
  work: () => Promise<T>,
): Promise<T> {
  const namespace = pidNamespaceOf(firstPid);
  if (namespace === undefined || namespace === pidNamespaceOf('self')) {
    throw new EngineError('not_running', 'The instance stopped while its snapshot was made.');
  }
  const guard = await startGuard(firstPid, dropTo);
  const stoppedByGuest = new Set(membersOf(namespace).filter(isStopped).map(identityKey));
  try {
    await pauseAll(namespace);
    return await work();
  } finally {
    // What the guest itself had stopped (Ctrl-Z in its shell) stays stopped.
    continueAll(namespace, stoppedByGuest);
    guard.stdin?.end('done\n');
  }
}

async function startGuard(firstPid: number, dropTo: Identity | undefined): Promise<ChildProcess> {
  const guard = spawn('/bin/sh', ['-c', GUARD_SCRIPT, 'guard', String(firstPid)], {
    cwd: '/',
    env: CLEAN_ENVIRONMENT,
    stdio: ['pipe', 'ignore', 'ignore'],
    // A session of its own: Ctrl-C in the service's terminal must not end it first.
    detached: true,
    ...dropTo,
  });
  guard.stdin?.on('error', () => undefined);
  try {
    await once(guard, 'spawn');
  } catch (cause) {
    throw new EngineError('failed', 'The instance could not be paused.', { cause });
  }
  return guard;
}

/** A process may fork while the table is read, so it is read until nobody in it can move any more. */
async function pauseAll(namespace: string): Promise<void> {
  const begin = performance.now();
  const signalled = new Set<string>();
  for (;;) {
    const elapsedMs = performance.now() - begin;
    const moving = membersOf(namespace).filter(
      (stat) => !isStopped(stat) && !(signalled.has(identityKey(stat)) && isHeld(stat, elapsedMs)),
    );
    if (moving.length === 0) return;
    if (elapsedMs > PAUSE_TIMEOUT_MS) throw tooLively();
    for (const stat of moving) {
      signal(stat, 'SIGSTOP');
      signalled.add(identityKey(stat));
    }
    await sleep(RETRY_INTERVAL_MS);
  }
}

function tooLively(): EngineError {
  return new EngineError(
    'failed',
    'The processes of the instance could not be paused within five seconds. Stop what starts processes without end in it, then try again.',
  );
}

/** Lets everybody go on but those in `except`. */
export function continueAll(namespace: string, except: ReadonlySet<string> = new Set()): void {
  for (const stat of membersOf(namespace)) {
    if (!except.has(identityKey(stat))) signal(stat, 'SIGCONT');
  }
}

/**
 * Stopped without showing it: a process whose first thread has ended shows Z for ever; one that waits for
 * a stopped child of vfork(2), or for storage, shows D and stops before it returns to its program.
 */
function isHeld(stat: ProcessStat, elapsedMs: number): boolean {
  return stat.state === 'Z' || (stat.state === 'D' && elapsedMs > KERNEL_WAIT_MS);
}

/** `t` is a process held by a tracer: its tracer is stopped as well, so it does not move either. */
function isStopped(stat: ProcessStat): boolean {
  return stat.state === 'T' || stat.state === 't';
}

function identityKey(stat: ProcessStat): string {
  return `${stat.pid} ${stat.startTicks}`;
}
