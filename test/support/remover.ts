/** A program that waits beside a test and removes what it made: the test may die in any way. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** Runs it with these words; calling the result lets it begin, and resolves when it is done. */
export function startRemover(program: string, ...words: string[]): () => Promise<void> {
  // Of its own process group, so that Ctrl-C in a terminal does not end it as well.
  const child = spawn(process.execPath, [program, ...words], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
  });
  const ended = once(child, 'exit');
  return async () => {
    child.stdin.end();
    await ended;
  };
}

/** For the program: resolves when the one who started it has let go of it, or is no more. */
export async function ownerEnded(): Promise<void> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => undefined);
  process.stdin.resume();
  await once(process.stdin, 'close');
}
