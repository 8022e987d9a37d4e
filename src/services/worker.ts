/**
 * The worker carries out slow work: create, delete, start, stop, snapshot, restore.
 *
 * A request writes an operation row beside the row it changes, in one transaction, and answers. The worker
 * claims due operations by a lease (compare and set, so two workers never hold the same one), runs their steps in
 * order, and writes down after each how far it got. Steps are idempotent, so it does not matter where it is
 * killed: whoever claims the operation next begins with the step that was not yet written down as done. A node
 * that starts again frees its own leases first; another node's run out by themselves.
 *
 * A step that fails is tried again with growing pauses until the kind's deadline. After that, or at once when no
 * retry can mend it, the failure is written for everyone to see, and the steps that ran are undone in reverse.
 */
import { AppError } from '../domain/errors.ts';
import type { Store } from '../store/database.ts';
import {
  claimOperation,
  leaseMs,
  listDueOperations,
  longestPauseMs,
  nextDueAt,
  updateLeased,
} from '../store/operations.ts';
import type { OperationRow, OperationTable } from '../store/schema.ts';
import { auditOperation } from './audit.ts';
import type { Log } from './context.ts';
import { failureReason } from './engine-errors.ts';
import type { OperationKind, Step } from './operations.ts';

const renewEveryMs = 10_000;
const parallelOperations = 16;
/** No organization holds more than this, so that slow work of one never holds up the others. */
const parallelPerOrganization = 4;
const lookAhead = 500;
const attemptsAtUndo = 5;
const patienceAtStopMs = 10_000;

export interface WorkerOptions {
  readonly store: Store;
  readonly kinds: readonly OperationKind[];
  readonly log: Log;
  readonly now: () => number;
  /** The name that leases are held under: this node. */
  readonly owner: string;
  readonly crashPoint: (point: string) => void;
  /** There is room for the next operation. */
  readonly onFinished: () => void;
}

/** Another worker took the operation over: let go of it without a word. */
class LeaseLost extends Error {}

export class Worker {
  readonly #options: WorkerOptions;
  readonly #kinds: ReadonlyMap<string, OperationKind>;
  readonly #running = new Map<string, { readonly orgId: string; readonly work: Promise<void> }>();
  #stopped = false;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#kinds = new Map(options.kinds.map((kind) => [kind.kind, kind]));
  }

  /** Claims what is due and carries it on until it ends, or until its next pause; resolves with how many it claimed. */
  async runOnce(): Promise<number> {
    const claimed = await this.#claimDue();
    await Promise.all(claimed.map((operation) => this.#running.get(operation.id)?.work));
    return claimed.length;
  }

  /** Begins whatever is due, without waiting for its end; resolves with the time when to look again, if any. */
  async begin(): Promise<number | undefined> {
    await this.#claimDue();
    return nextDueAt(this.#options.store.db);
  }

  /** Begins nothing more, and waits a while for the running steps; what has not ended by then is resumed after a restart. */
  async stop(): Promise<void> {
    this.#stopped = true;
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, patienceAtStopMs);
    });
    await Promise.race([Promise.all([...this.#running.values()].map((one) => one.work)), patience]);
    clearTimeout(timer);
  }

  async #claimDue(): Promise<OperationRow[]> {
    const { store, now, owner } = this.#options;
    const claimed: OperationRow[] = [];
    if (this.#stopped || this.#running.size >= parallelOperations) return claimed;
    for (const operation of await listDueOperations(store.db, now(), lookAhead)) {
      if (!this.#hasRoomFor(operation)) continue;
      const lease = { owner, now: now(), expiresAt: now() + leaseMs };
      if (!(await claimOperation(store.db, operation.id, lease))) continue;
      claimed.push(operation);
      const work = this.#carryOn(operation).finally(() => {
        this.#running.delete(operation.id);
        this.#options.onFinished();
      });
      this.#running.set(operation.id, { orgId: operation.org_id, work });
    }
    return claimed;
  }

  #hasRoomFor({ id, org_id }: OperationRow): boolean {
    if (this.#running.has(id) || this.#running.size >= parallelOperations) return false;
    const own = [...this.#running.values()].filter((one) => one.orgId === org_id);
    return own.length < parallelPerOrganization;
  }

  async #carryOn(operation: OperationRow): Promise<void> {
    const { log } = this.#options;
    const renewal = setInterval(() => this.#renew(operation), renewEveryMs);
    try {
      const kind = this.#kinds.get(operation.kind);
      if (!kind) throw new Error(`unknown kind of operation ${operation.kind}`);
      if (operation.state === 'undoing') await this.#undo(kind, operation);
      else await this.#run(kind, operation);
    } catch (error) {
      if (error instanceof LeaseLost)
        log.warn({ operation: operation.id }, 'another worker took the operation over');
      else await this.#letGo(operation, error);
    } finally {
      clearInterval(renewal);
    }
  }

  async #run(kind: OperationKind, start: OperationRow): Promise<void> {
    let operation = start;
    for (let step = kind.steps[operation.step]; step; step = kind.steps[operation.step]) {
      try {
        await this.#runStep(kind, step, operation);
      } catch (error) {
        return this.#afterFailure(kind, operation, error);
      }
      if (kind.steps[operation.step + 1]) operation = await this.#advance(kind, operation);
      else break;
      if (this.#stopped) return this.#release(operation);
    }
    await this.#succeed(kind, operation);
  }

  async #runStep(kind: OperationKind, step: Step, operation: OperationRow): Promise<void> {
    this.#options.crashPoint(`${kind.kind}:${step.name}:before`);
    await step.run(operation);
    this.#options.crashPoint(`${kind.kind}:${step.name}:after`);
  }

  async #advance(kind: OperationKind, operation: OperationRow): Promise<OperationRow> {
    const next = { ...operation, step: operation.step + 1, attempts: 0 };
    await this.#options.store.freeingTransaction(async (tx) => {
      await this.#write(tx, operation, { step: next.step, attempts: 0 });
      await kind.steps[next.step]?.enter?.(tx, next);
    });
    kind.changed?.(next);
    return next;
  }

  async #succeed(kind: OperationKind, operation: OperationRow): Promise<void> {
    const { store, now, crashPoint } = this.#options;
    crashPoint(`${kind.kind}:outcome:before`);
    await store.freeingTransaction(async (tx) => {
      await this.#write(tx, operation, {
        state: 'succeeded',
        finished_at: now(),
        lease_owner: null,
      });
      await auditOperation(tx, operation, now(), 'done');
      await kind.succeed(tx, operation);
    });
    crashPoint(`${kind.kind}:outcome:after`);
    kind.changed?.(operation);
  }

  async #afterFailure(kind: OperationKind, operation: OperationRow, error: unknown): Promise<void> {
    const { store, now, log } = this.#options;
    const attempts = operation.attempts + 1;
    const detail = error instanceof Error && 'detail' in error ? error.detail : undefined;
    const fields = {
      err: error,
      detail,
      operation: operation.id,
      kind: kind.kind,
      step: operation.step,
      attempts,
    };
    log.warn(fields, 'a step failed');
    const pause = pauseMs(attempts);
    const final = kind.isFinal?.(error, attempts) ?? false;
    if (!final && now() + pause < operation.deadline_at) {
      return this.#write(store.db, operation, {
        attempts,
        run_at: now() + pause,
        lease_owner: null,
      });
    }
    const reason = failureReason(error);
    await store.freeingTransaction(async (tx) => {
      await this.#write(tx, operation, { state: 'undoing', attempts: 0, error: reason });
      await auditOperation(tx, operation, now(), 'failed');
      await kind.fail(tx, operation, reason);
    });
    kind.changed?.(operation);
    await this.#undo(kind, { ...operation, state: 'undoing', attempts: 0 });
  }

  /** Undoes the current step (it may have got half-way) and all before it. */
  async #undo(kind: OperationKind, start: OperationRow): Promise<void> {
    const { store, now, log } = this.#options;
    for (let index = start.step; index >= 0; index--) {
      try {
        await kind.steps[index]?.undo?.(start);
      } catch (error) {
        const attempts = start.attempts + 1;
        log.warn(
          { err: error, operation: start.id, kind: kind.kind, step: index, attempts },
          'an undo failed',
        );
        if (attempts >= attemptsAtUndo) continue;
        const later = {
          step: index,
          attempts,
          run_at: now() + pauseMs(attempts),
          lease_owner: null,
        };
        return this.#write(store.db, start, later);
      }
    }
    await this.#write(store.db, start, { state: 'failed', finished_at: now(), lease_owner: null });
    kind.changed?.(start);
  }

  async #write(
    db: Store['db'],
    operation: OperationRow,
    change: Partial<OperationTable>,
  ): Promise<void> {
    if (!(await updateLeased(db, operation.id, this.#options.owner, change))) throw new LeaseLost();
  }

  #release(operation: OperationRow): Promise<void> {
    return this.#write(this.#options.store.db, operation, { lease_owner: null });
  }

  /** The failure could not even be written down (a full disk, say): pause, and let anyone try again. */
  async #letGo(operation: OperationRow, error: unknown): Promise<void> {
    const { store, now, log } = this.#options;
    const level = error instanceof AppError ? 'warn' : 'error';
    log[level](
      { err: error, operation: operation.id, kind: operation.kind },
      'an operation was interrupted',
    );
    const later = { run_at: now() + pauseMs(3), lease_owner: null };
    await this.#write(store.db, operation, later).catch((failure: unknown) => {
      log.error({ err: failure, operation: operation.id }, 'the lease runs out by itself');
    });
  }

  #renew(operation: OperationRow): void {
    const { store, now, owner, log } = this.#options;
    updateLeased(store.db, operation.id, owner, { lease_expires_at: now() + leaseMs }).catch(
      (error: unknown) => {
        log.warn({ err: error, operation: operation.id }, 'the lease was not renewed');
      },
    );
  }
}

/** 0.25 s, 0.5 s, 1 s ... 30 s. */
const pauseMs = (attempts: number): number => Math.min(longestPauseMs, 250 * 2 ** (attempts - 1));
