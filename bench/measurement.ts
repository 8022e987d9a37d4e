/** One line of the result. */
export interface Measurement {
  readonly name: string;
  readonly ratio: number;
  readonly detail: string;
  /** Absent: shown for comparison. */
  readonly goal?: { readonly text: string; readonly holds: (ratio: number) => boolean };
}

export const atLeast = (limit: number): Measurement['goal'] & object => ({
  text: `>= ${limit.toFixed(2)}`,
  holds: (ratio) => ratio >= limit,
});

export const atMost = (limit: number): Measurement['goal'] & object => ({
  text: `<= ${limit.toFixed(2)}`,
  holds: (ratio) => ratio <= limit,
});

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** Milliseconds that `work` takes. */
export async function timeMs(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
