import { AppError, notFound } from '../domain/errors.ts';
import { parseReference } from '../domain/ids.ts';
import { type InstanceAction, judge } from '../domain/lifecycle.ts';
import type { Scope } from '../domain/scopes.ts';
import { shorten } from '../domain/shorten.ts';
import type { Engine } from '../engines/engine.ts';
import type { Db, Store } from '../store/database.ts';
import { findInstance } from '../store/instances.ts';
import type { InstanceRow } from '../store/schema.ts';

export { shorten };

/** The part of a logger that services use; pino's fits. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** What every service is made of. */
export interface ServiceContext {
  readonly store: Store;
  readonly engine: Engine;
  readonly log: Log;
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
  /** Called at every point where a crash would be interesting; does nothing outside the crash suite. */
  readonly crashPoint: (point: string) => void;
}

/** Who asks: one token of one organization. */
export interface Actor {
  readonly tokenId: string;
  readonly userId: string;
  readonly orgId: string;
  readonly orgName: string;
  readonly email: string;
  readonly scopes: readonly Scope[];
  readonly requestId: string;
}

/** The caller's instance of that number or UUID; what another organization owns does not exist. */
export async function requireInstance(
  db: Db,
  actor: Actor,
  reference: string,
): Promise<InstanceRow> {
  const parsed = parseReference(reference);
  const instance = parsed && (await findInstance(db, actor.orgId, parsed));
  if (!instance) throw notFound('Instance', shorten(reference));
  return instance;
}

/** Throws the 409 of the state table; true when the wish is settled already. */
export function requireState(action: InstanceAction, instance: InstanceRow): boolean {
  const verdict = judge(action, instance.status);
  if (verdict.kind !== 'refused') return verdict.kind === 'settled';
  // What is UNKNOWN has a reason, which says more than any hint.
  const reason = instance.status === 'UNKNOWN' ? instance.failure : null;
  const hint = reason ?? verdict.hint;
  throw new AppError('conflict', `Instance ${instance.identifier} is ${instance.status}. ${hint}`);
}

/** Its owner stopped or deleted it: that is why something failed in it, whatever the engine says. */
export async function requireUp(db: Db, actor: Actor, uuid: string): Promise<void> {
  const { identifier, status } = await requireInstance(db, actor, uuid);
  if (status === 'STOPPING' || status === 'STOPPED')
    throw new AppError(
      'conflict',
      `Instance ${identifier} is ${status}: that was asked for meanwhile.`,
    );
}
