import type { KeyedLock } from '../domain/keyed-lock.ts';
import { EngineError } from '../engines/engine.ts';

/**
 * Runs `work` when its turn under the key has come. When the turn does not come within `patienceMs` this rejects
 * with an `EngineError` of kind `timeout`, and `work` is never run: its caller has had an answer by then.
 */
export async function inTurn<T>(
  locks: KeyedLock,
  key: string,
  patienceMs: number,
  work: () => Promise<T>,
): Promise<T> {
  let state: 'waiting' | 'begun' | 'abandoned' = 'waiting';
  return new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => {
      if (state === 'begun') return;
      state = 'abandoned';
      reject(
        new EngineError(
          'timeout',
          'Another request for the same key takes too long. Try again in a minute.',
        ),
      );
    }, patienceMs);
    const turn = async () => {
      if (state === 'abandoned') return;
      state = 'begun';
      clearTimeout(timer);
      await work().then(resolve, reject);
    };
    void locks.run(key, turn);
  });
}
