import { AppError } from '../domain/errors.ts';

/** Extended result codes of https://www.sqlite.org/rescode.html; the low byte is the primary code. */
const constraintUnique = 2067;
const constraintPrimaryKey = 1555;
/** What a full disk is called for the index of the write-ahead log, which is made when a database is opened. */
const indexTooSmall = 4874;
const primary = { busy: 5, readOnly: 8, io: 10, full: 13, cantOpen: 14 } as const;

/** Did a write meet a row that is there already? */
export function isUniqueViolation(error: unknown): boolean {
  const code = resultCode(error);
  return code === constraintUnique || code === constraintPrimaryKey;
}

/** Did a write meet a full disk? */
export const isStorageFull = (error: unknown): boolean =>
  (resultCode(error) & 0xff) === primary.full || resultCode(error) === indexTooSmall;

/** A database that cannot write now is a 503 with a hint, never a defect; any other error stays as it is. */
export function explainStoreError(error: unknown): unknown {
  switch (resultCode(error) & 0xff) {
    case primary.full:
    case primary.io:
      return unavailable(
        'The service cannot write its database: its disk is full or failing. Delete instances or snapshots, or tell the operator.',
        error,
      );
    case primary.busy:
    case primary.readOnly:
    case primary.cantOpen:
      return unavailable('The database cannot be written right now. Try again in a minute.', error);
    default:
      return error;
  }
}

const unavailable = (message: string, cause: unknown): AppError =>
  new AppError('unavailable', message, { cause });

function resultCode(error: unknown): number {
  if (!(error instanceof Error) || !('errcode' in error)) return 0;
  return typeof error.errcode === 'number' ? error.errcode : 0;
}
