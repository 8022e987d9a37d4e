/** What Incus said, or that it said nothing. HTTP status alone tells little there, so its words are read too. */

export type IncusErrorKind =
  /** No connection to any endpoint: nothing was done. */
  | 'unreachable'
  /** The connection or the operation was lost after the request went out: it may have been done or not. */
  | 'unknown_outcome'
  /** No answer in time: it may still be done. */
  | 'timeout'
  | 'not_found'
  /** The name is taken, or something else is being done with the object. */
  | 'busy'
  /** The object changed since it was read (`If-Match`). */
  | 'stale'
  | 'not_running'
  | 'no_space'
  /** Another instance on the bridge has the hardware or IP address. */
  | 'address_taken'
  /** The agent of a virtual machine does not answer. */
  | 'no_agent'
  /** The member of the cluster that holds the object does not answer. */
  | 'host_down'
  | 'refused';

export class IncusError extends Error {
  override readonly name = 'IncusError';
  readonly kind: IncusErrorKind;
  /** Of the answer, or of the failed operation; undefined where none came. */
  readonly status: number | undefined;

  constructor(
    kind: IncusErrorKind,
    message: string,
    options: { status?: number | undefined; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.status = options.status;
  }
}

/** In this order: the first that fits. Checked against the server's words, for which there are no codes. */
const words: readonly (readonly [RegExp, IncusErrorKind])[] = [
  [/disk quota exceeded|no space left/i, 'no_space'],
  [/address "[^"]+" already defined on another NIC/i, 'address_taken'],
  [/agent (?:isn't|is not) (?:currently )?running|Failed to connect to the agent/i, 'no_agent'],
  [/UNIQUE constraint failed|already exists|is busy running/i, 'busy'],
  [/Instance is not running|is already stopped|The instance is already stopped/i, 'not_running'],
  [
    /Unable to connect|Missing event connection|Server isn't ready yet|no available cowsql leader|Failed to connect to (?:peer|cluster)|no route to host|i\/o timeout/i,
    'host_down',
  ],
  [/ETag doesn't match|Precondition failed/i, 'stale'],
];

/** The error for an answer of this status with these words. */
export function incusErrorOf(status: number, text: string): IncusError {
  const kind =
    words.find(([pattern]) => pattern.test(text))?.[1] ??
    ({ 404: 'not_found', 412: 'stale', 503: 'host_down' } as const)[status] ??
    'refused';
  return new IncusError(kind, text === '' ? `Incus answered ${status}.` : text, { status });
}

export const isIncusError = (error: unknown, ...kinds: IncusErrorKind[]): error is IncusError =>
  error instanceof IncusError && kinds.includes(error.kind);

/**
 * Incus reads the host's firewall before it changes it, and the kernel ends such a reading when somebody else changes
 * the firewall at that moment. Nothing was done then, and the next attempt is likely to go through.
 */
export const isFirewallRace = (error: unknown): boolean =>
  error instanceof IncusError && /nftables[^\n]*: EOF\b/.test(error.message);
