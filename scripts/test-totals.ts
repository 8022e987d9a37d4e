/** A reporter for node's runner: tells `scripts/test.ts` what a pass came to, as one JSON text on descriptor 3. */
import { writeSync } from 'node:fs';
import type { TestEvent } from 'node:test/reporters';

export interface Totals {
  readonly tests: number;
  readonly passed: number;
  /** Those that were cancelled among them. */
  readonly failed: number;
  readonly skipped: number;
}

export default async function* totals(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const { type, data } of source) {
    // Each file has a summary of its own, too.
    if (type !== 'test:summary' || data.file !== undefined) continue;
    const { tests, passed, skipped, todo } = data.counts;
    const failed = tests - passed - skipped - todo;
    writeSync(3, JSON.stringify({ tests, passed, failed, skipped }));
  }
  yield '';
}
