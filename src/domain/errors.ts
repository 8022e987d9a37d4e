/** What went wrong, in words that know nothing of HTTP. `http/error-handler.ts` gives each a status. */
export type ErrorKind =
  | 'invalid_request'
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  | 'no_capacity'
  | 'idempotency_mismatch'
  | 'rate_limited'
  | 'internal'
  | 'engine_error'
  | 'login_refused'
  | 'unavailable'
  | 'engine_timeout';

/**
 * An error a caller may see. `message` is one or two plain sentences that say what to do next and is
 * safe to show to anyone who may make the request; `detail` and `cause` are for the log alone.
 */
export class AppError extends Error {
  override readonly name = 'AppError';
  readonly kind: ErrorKind;
  readonly detail: string | undefined;

  constructor(
    kind: ErrorKind,
    message: string,
    options: { detail?: string; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.detail = options.detail;
  }
}

export const invalidRequest = (message: string): AppError =>
  new AppError('invalid_request', message);
export const conflict = (message: string): AppError => new AppError('conflict', message);
export const noCapacity = (message: string): AppError => new AppError('no_capacity', message);
export const notFound = (resource: string, reference: string): AppError =>
  new AppError('not_found', `${resource} "${reference}" was not found.`);
