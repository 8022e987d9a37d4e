import { AppError, type ErrorKind } from '../domain/errors.ts';
import { EngineError, type EngineErrorKind } from '../engines/engine.ts';

const kinds: Readonly<Record<EngineErrorKind, ErrorKind>> = {
  unavailable: 'unavailable',
  timeout: 'engine_timeout',
  failed: 'engine_error',
  guest_conflict: 'conflict',
  not_running: 'conflict',
  port_taken: 'conflict',
  port_refused: 'conflict',
  no_space: 'engine_error',
  no_capacity: 'no_capacity',
  running: 'conflict',
};

/** What an engine threw, as what a caller may see; anything else is a defect and stays as it is. */
export function explainEngineError(error: unknown): unknown {
  if (!(error instanceof EngineError)) return error;
  const options =
    error.detail === undefined ? { cause: error } : { cause: error, detail: error.detail };
  return new AppError(kinds[error.kind], error.message, options);
}

/** The reason that a failed operation shows to its owner. */
export function failureReason(error: unknown): string {
  if (error instanceof EngineError || error instanceof AppError) return error.message;
  return 'The engine failed in an unexpected way; the operator finds the details in the log.';
}

/** Waits for the engine, but not for ever: after `timeoutMs` an `EngineError` of kind `timeout`. */
export async function withDeadline<T>(work: Promise<T>, timeoutMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new EngineError('timeout', 'The engine did not answer in time. Try again in a minute.'),
        ),
      timeoutMs,
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** An answer of the engine for a caller: in time, or an error that the caller may see. */
export async function askEngine<T>(work: Promise<T>, timeoutMs: number): Promise<T> {
  try {
    return await withDeadline(work, timeoutMs);
  } catch (error) {
    throw explainEngineError(error);
  }
}
