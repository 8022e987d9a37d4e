/** What Incus is doing with an instance at the moment, whoever asked for it. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { IncusClient } from './client.ts';
import { instancePath, type Place } from './names.ts';

/** The part of it that is read (doc/rest-api.md of Incus 6.0, `Operation`). */
interface Task {
  readonly class: string;
  readonly resources: Readonly<Record<string, readonly string[]>> | null;
}

const askMs = 2_000;
const pauseMs = 100;
const patienceMs = 20_000;

/**
 * Waits until an operator's own restart of an instance, say, is over: it stops the instance before it starts it, and
 * another start in between makes it fail. Nobody is waited for who takes longer than that, and none that Incus cannot
 * tell of.
 */
export async function letOthersFinish(client: IncusClient, place: Place): Promise<void> {
  const giveUpAt = performance.now() + patienceMs;
  while ((await isUnderWay(client, place)) && performance.now() < giveUpAt) await sleep(pauseMs);
}

async function isUnderWay(client: IncusClient, place: Place): Promise<boolean> {
  const options = { project: place.project, timeoutMs: askMs, query: { recursion: '1' } };
  // By their status: what has ended is listed for some seconds more.
  const listed = await client
    .get<Readonly<Record<string, readonly Task[]>>>('/1.0/operations', options)
    .catch(() => undefined);
  const tasks = [...(listed?.pending ?? []), ...(listed?.running ?? [])];
  // The others are terminals and commands in it.
  return tasks.some((task) => task.class === 'task' && concerns(task, place));
}

/** Of another project than the default one, the path bears its name. */
const concerns = ({ resources }: Task, place: Place): boolean =>
  (resources?.instances ?? []).some(
    (path) => new URL(path, 'http://incus').pathname === instancePath(place),
  );
