import { AppError, conflict } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { EngineError, type EngineErrorKind } from '../engines/engine.ts';
import type { Db } from '../store/database.ts';
import { insertOperation, isLocked } from '../store/operations.ts';
import type { OperationRow } from '../store/schema.ts';

/**
 * One step of slow work. `run` and `undo` are idempotent: the process may die in the middle, or right after
 * and before that is written down, and they are run again.
 */
export interface Step {
  readonly name: string;
  /** Writes what others should see from now on (a status); in the transaction that moves to this step. */
  enter?(tx: Db, operation: OperationRow): Promise<void>;
  run(operation: OperationRow): Promise<void>;
  /** Takes back whatever `run` did, also when it got only half-way. */
  undo?(operation: OperationRow): Promise<void>;
}

/** A kind of slow work: its steps, and what is written when it ends. */
export interface OperationKind {
  readonly kind: string;
  readonly steps: readonly Step[];
  /** How long it may take before it has failed; `undefined`: it is tried for ever. */
  readonly deadlineMs: number | undefined;
  /** Errors that no retry mends, or not after so many attempts. */
  isFinal?(error: unknown, attempts: number): boolean;
  succeed(tx: Db, operation: OperationRow): Promise<void>;
  fail(tx: Db, operation: OperationRow, reason: string): Promise<void>;
  /** After each commit that changed what callers see. */
  changed?(operation: OperationRow): void;
}

export interface NewOperation {
  readonly orgId: string;
  readonly kind: string;
  readonly subjectId: string;
  readonly lockId: string;
  /** Undefined when the service itself asks. */
  readonly tokenId: string | undefined;
  readonly now: number;
}

const farFuture = 8_640_000_000_000_000;

/** Writes the operation beside the row it is about, in the caller's transaction; 409 while another is under way. */
export async function enqueue(
  tx: Db,
  operation: NewOperation,
  deadlineMs: number | undefined,
): Promise<void> {
  if (await isLocked(tx, operation.lockId)) {
    throw conflict('A change of it is under way. Wait until it has ended and try again.');
  }
  await insertOperation(tx, {
    id: newId(),
    org_id: operation.orgId,
    kind: operation.kind,
    subject_id: operation.subjectId,
    lock_id: operation.lockId,
    state: 'running',
    step: 0,
    attempts: 0,
    run_at: operation.now,
    deadline_at: deadlineMs === undefined ? farFuture : operation.now + deadlineMs,
    lease_owner: null,
    lease_expires_at: null,
    token_id: operation.tokenId ?? null,
    error: null,
    created_at: operation.now,
    finished_at: null,
  });
}

/** How long each kind may take, in ms; `undefined`: it is tried for ever, because giving up would leave things over. */
export const operationDeadlines = {
  'instance.create': 15 * 60_000,
  'instance.start': 5 * 60_000,
  'instance.stop': undefined,
  'instance.delete': undefined,
  'snapshot.create': 60 * 60_000,
  'snapshot.delete': undefined,
} as const;
export type OperationName = keyof typeof operationDeadlines;

/** What is tried again until the deadline comes from outside (the engine is away); its own failures are not. */
const attemptsAtFailure = 5;

/** No retry mends these: they stay as they are until somebody does something about them. */
const lasting: readonly EngineErrorKind[] = [
  'no_space',
  'no_capacity',
  'not_running',
  'guest_conflict',
  'port_refused',
];

export function isFinalEngineError(error: unknown, attempts: number): boolean {
  if (error instanceof AppError) return false;
  if (!(error instanceof EngineError)) return attempts >= attemptsAtFailure;
  if (lasting.includes(error.kind)) return true;
  return error.kind === 'failed' && attempts >= attemptsAtFailure;
}
