/**
 * Keeps two objects that `process.nextTick` made, for as long as the process lives.
 *
 * Every answer takes several ticks, and compiled code makes their objects by a hidden class that V8 holds weakly. A
 * collection at a moment when no tick is waiting drops the class, and with it the compiled code's knowledge; after a
 * few times V8 gives up and builds each tick property by property. It costs a cached list about a fifth of its
 * requests per second (docs/decisions/0004-list-fast-path.md says how to see it). One living object of each shape,
 * without arguments and with, keeps the class.
 */
import { executionAsyncResource } from 'node:async_hooks';

const kept: object[] = [];

export function keepTickShapes(): void {
  if (kept.length > 0) return;
  process.nextTick(() => kept.push(executionAsyncResource()));
  process.nextTick((_argument: number) => kept.push(executionAsyncResource()), 0);
}
