import { setTimeout as sleep } from 'node:timers/promises';

export { sleep };

/** Probes until the probe gives something other than undefined; an error of the probe ends the wait. */
export async function eventually<T>(
  what: string,
  timeoutMs: number,
  probe: () => Promise<T | undefined> | T | undefined,
  pauseMs = 25,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value !== undefined) return value;
    if (Date.now() >= deadline) throw new Error(`Not within ${timeoutMs} ms: ${what}.`);
    await sleep(pauseMs);
  }
}

/** Repeats a check until it passes; what failed last is thrown when the time is over. */
export async function eventuallyPasses(
  timeoutMs: number,
  check: () => Promise<void> | void,
  pauseMs = 50,
): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    try {
      await check();
      return;
    } catch (error) {
      if (Date.now() >= deadline) throw error;
    }
    await sleep(pauseMs);
  }
}

/** Maps with at most `width` at work at once; results stand in the order of the items. */
export async function pooled<T, R>(
  items: readonly T[],
  width: number,
  work: (item: T, index: number) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  const queue = items.entries();
  const lane = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await work(item, index);
  };
  await Promise.all(Array.from({ length: width }, lane));
  return results;
}
