/** Turns what the system reports into the errors an engine may throw. */

import { constants } from 'node:os';
import { EngineError } from '../engine.ts';
import type { CommandResult } from './commands.ts';

const HOST_FULL = 'The disk of this host is full. Free some space, then try again.';
const QUOTA_FULL =
  'The disk of the instance is full. Remove files inside the instance, or make its disk larger, then try again.';

const QUOTA_SAID = /Disk quota exceeded/;
/** How programs print a full disk. */
export const NO_SPACE_SAID = /No space left on device|Disk quota exceeded/;

/** The errno name of a failed system call; undefined for every other error. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, errno } = error as NodeJS.ErrnoException;
  // Node.js has the number of this one, and not its name.
  return errno === -constants.errno.EDQUOT ? 'EDQUOT' : code;
}

/** An EngineError for any error: a full disk by its own name, the rest as "failed" with this message. */
export function asEngineError(error: unknown, message: string): EngineError {
  if (error instanceof EngineError) return error;
  const code = codeOf(error);
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new EngineError('no_space', code === 'EDQUOT' ? QUOTA_FULL : HOST_FULL, {
      cause: error,
    });
  }
  const detail = error instanceof Error ? error.message : String(error);
  return new EngineError('failed', message, { detail, cause: error });
}

/** Throws unless the command ended well. */
export function requireSuccess(result: CommandResult, message: string): void {
  if (result.code === 0) return;
  if (NO_SPACE_SAID.test(result.stderr)) {
    const message = QUOTA_SAID.test(result.stderr) ? QUOTA_FULL : HOST_FULL;
    throw new EngineError('no_space', message, { detail: result.stderr });
  }
  const ending = result.code === null ? 'was ended by a signal or its deadline' : result.code;
  throw new EngineError('failed', message, { detail: `exit: ${ending}; ${result.stderr}` });
}

/** Runs work; whatever it throws comes out as an EngineError. */
export async function failingAs<T>(message: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw asEngineError(error, message);
  }
}
