/** Turns what Incus said into the errors an engine may throw. */

import { EngineError, type EngineErrorKind } from '../engine.ts';
import { IncusError, type IncusErrorKind } from './incus-error.ts';

/** `undefined`: the caller's message says it best. */
const meanings: Readonly<Record<IncusErrorKind, readonly [EngineErrorKind, string | undefined]>> = {
  unreachable: [
    'unavailable',
    'Incus cannot be reached. Try again in a minute; the operator finds what is wrong with: berth admin engine check',
  ],
  host_down: [
    'unavailable',
    'The host of this instance cannot be reached at the moment. Try again in a few minutes.',
  ],
  timeout: ['timeout', 'Incus did not answer in time. Try again in a minute.'],
  unknown_outcome: ['timeout', 'The connection to Incus was lost. Try again in a minute.'],
  no_space: [
    'no_space',
    'The disk of the instance, or the storage of its host, is full. Remove files in the instance or give it a larger disk, then try again; if it has room, the operator makes some on the host.',
  ],
  no_agent: [
    'failed',
    'The agent in the virtual machine does not answer. Restart the instance, then try again.',
  ],
  not_running: ['not_running', undefined],
  // Another change of the same thing: over in a moment.
  busy: ['timeout', 'Incus is still busy with an earlier change of it. Try again in a minute.'],
  // Addresses go by the SSH port, which no other instance of this Berth has. Whose it is, is not the tenant's to know.
  address_taken: [
    'failed',
    "An instance that this Berth does not know has the address that this one would have: another Berth's (berth admin engine check), or a copy that was made with the tools of Incus. When the operator has deleted it or given it another address, start this one again.",
  ],
  not_found: ['failed', undefined],
  stale: ['failed', undefined],
  refused: ['failed', undefined],
};

/** An EngineError for any error; `message` for those that say nothing to whoever uses the instance. */
export function asEngineError(error: unknown, message: string): EngineError {
  if (error instanceof EngineError) return error;
  const detail = error instanceof Error ? error.message : String(error);
  if (!(error instanceof IncusError))
    return new EngineError('failed', message, { detail, cause: error });
  const [kind, meaning] = meanings[error.kind];
  return new EngineError(kind, meaning ?? message, { detail, cause: error });
}

/** Runs work; whatever it throws comes out as an EngineError. */
export async function failingAs<T>(message: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw asEngineError(error, message);
  }
}
