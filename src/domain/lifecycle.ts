/**
 * What is allowed in which state: the only place where this is decided. Services answer 409 from this
 * table, and a client may use it to say beforehand why something cannot be done.
 */

export const instanceStatuses = [
  'PROVISIONING',
  'STARTING',
  'RUNNING',
  'STOPPING',
  'STOPPED',
  'SNAPPING',
  'RESTORING',
  'MODIFYING',
  'UNKNOWN',
] as const;
export type InstanceStatus = (typeof instanceStatuses)[number];

export const snapshotStatuses = ['CREATING', 'READY', 'FAILED'] as const;
export type SnapshotStatus = (typeof snapshotStatuses)[number];

export type InstanceAction =
  | 'add_key'
  | 'remove_key'
  | 'snapshot'
  | 'modify'
  | 'start'
  | 'stop'
  | 'delete';

interface Rule {
  readonly allowed: readonly InstanceStatus[];
  /** In these the wish is already true or on its way: a success that changes nothing. */
  readonly settled: readonly InstanceStatus[];
  readonly hint: string;
}

const untilRunning = 'Wait until it is RUNNING, or start it, and try again.';
const untilSteady = 'Wait until the change under way has ended and try again.';

const instanceRules: Readonly<Record<InstanceAction, Rule>> = {
  add_key: { allowed: ['RUNNING'], settled: [], hint: untilRunning },
  remove_key: { allowed: ['RUNNING', 'STOPPED'], settled: [], hint: untilSteady },
  snapshot: { allowed: ['RUNNING'], settled: [], hint: untilRunning },
  modify: { allowed: ['RUNNING', 'STOPPED'], settled: [], hint: untilSteady },
  start: { allowed: ['STOPPED'], settled: ['RUNNING', 'STARTING'], hint: untilSteady },
  stop: { allowed: ['RUNNING'], settled: ['STOPPED', 'STOPPING'], hint: untilSteady },
  delete: { allowed: ['RUNNING', 'STOPPED', 'UNKNOWN'], settled: [], hint: untilSteady },
};

/** `do` it, it is `settled` already, or it is refused: then a hint what the caller can do. */
export type Verdict =
  | { readonly kind: 'do' | 'settled' }
  | { readonly kind: 'refused'; readonly hint: string };

export function judge(action: InstanceAction, status: InstanceStatus): Verdict {
  const rule = instanceRules[action];
  if (rule.allowed.includes(status)) return { kind: 'do' };
  if (rule.settled.includes(status)) return { kind: 'settled' };
  return { kind: 'refused', hint: rule.hint };
}
