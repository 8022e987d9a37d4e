import type { Generated, Selectable } from 'kysely';
import type { InstanceStatus, SnapshotStatus } from '../domain/lifecycle.ts';
import type { Role } from '../domain/scopes.ts';

/** Times are milliseconds since the Unix epoch, UTC. */
export interface Schema {
  organizations: OrganizationTable;
  users: UserTable;
  tokens: TokenTable;
  instances: InstanceTable;
  instance_keys: InstanceKeyTable;
  snapshots: SnapshotTable;
  operations: OperationTable;
  audit_log: AuditTable;
  quotas: QuotaTable;
  instance_ports: InstancePortTable;
  keys: KeyTable;
  kept_answers: KeptAnswerTable;
  gpu_allocations: GpuAllocationTable;
  growth_reservations: GrowthReservationTable;
  placing_lock: PlacingLockTable;
}

export interface OrganizationTable {
  id: string;
  name: string;
  /** The number that the next instance gets. */
  next_identifier: number;
  created_at: number;
  /** Lines of its audit log, how many of them are from before there was a chain, and the hash of the newest. */
  audit_count: Generated<number>;
  audit_before: Generated<number>;
  audit_head: Generated<string>;
}

export interface UserTable {
  id: string;
  org_id: string;
  email: string;
  /** A membership: one person in two organizations is two rows. */
  role: Generated<Role>;
  created_at: number;
}

export interface TokenTable {
  id: string;
  org_id: string;
  user_id: string;
  name: string;
  prefix: string;
  hash: string;
  /** JSON array of strings. */
  scopes: string;
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
}

export interface InstanceTable {
  id: string;
  org_id: string;
  identifier: number;
  engine_ref: string;
  name: string;
  status: InstanceStatus;
  cpu_cores: number;
  num_gpus: number;
  memory_gb: number;
  disk_size_gb: number;
  ephemeral_disk_gb: number;
  gpu_type: string;
  mode: string;
  template: string;
  /** The snapshot it was restored from. */
  snapshot_id: string | null;
  /** Allocated on this host; unique. */
  ssh_port: number;
  /** Where SSH answers, once it does. */
  ip: string | null;
  port: number | null;
  failure: string | null;
  created_at: number;
  status_since: number;
  /** Set when its deletion was accepted; the row goes once the engine holds nothing of it. */
  deleted_at: number | null;
  /** The host it was placed on; null where nobody accounts for hosts. */
  host: string | null;
  /** What it was when the engine lost sight of it, and will be again when the engine has it again. */
  status_before: InstanceStatus | null;
}

export interface InstanceKeyTable {
  id: string;
  org_id: string;
  instance_id: string;
  /** Exactly as given. */
  public_key: string;
  key_type: string;
  fingerprint: string;
  comment: string;
  source: 'supplied' | 'generated' | 'create';
  /** `pending`: a generated pair whose answer has not left yet; it is taken back if it never does. */
  state: 'pending' | 'active';
  added_at: number;
  expires_at: number | null;
}

export interface SnapshotTable {
  id: string;
  org_id: string;
  instance_id: string;
  engine_ref: string;
  name: string;
  status: SnapshotStatus;
  minimum_disk_size_gb: number;
  created_at: number;
  deleted_at: number | null;
}

export type OperationState = 'running' | 'undoing' | 'succeeded' | 'failed';

export interface OperationTable {
  id: string;
  org_id: string;
  kind: string;
  /** The instance or snapshot that it is about. */
  subject_id: string;
  /** The instance or snapshot that no other operation may touch meanwhile. */
  lock_id: string;
  state: OperationState;
  /** Index of the step to run (or to undo) next. */
  step: number;
  /** How often that step was begun. */
  attempts: number;
  run_at: number;
  deadline_at: number;
  lease_owner: string | null;
  lease_expires_at: number | null;
  token_id: string | null;
  error: string | null;
  created_at: number;
  finished_at: number | null;
}

export interface AuditTable {
  id: Generated<number>;
  at: number;
  org_id: string;
  token_id: string | null;
  request_id: string | null;
  action: string;
  subject: string;
  outcome: string;
  /** Of this line and the one before it in the organization; null for lines from before there was a chain. */
  hash: Generated<string | null>;
  /** Which line of its organization it is; 1 is the oldest. */
  position: Generated<number>;
}

/** Null: no limit. */
export interface QuotaTable {
  org_id: string;
  instances: number | null;
  cpu_cores: number | null;
  disk_gb: number | null;
  snapshots: number | null;
}

export interface InstancePortTable {
  /** Both the port inside the instance and the one on the host. */
  port: number;
  org_id: string;
  instance_id: string;
  created_at: number;
}

/** The organization's address book of keys; nothing attaches them by itself. */
export interface KeyTable {
  id: string;
  org_id: string;
  name: string;
  public_key: string;
  key_type: string;
  fingerprint: string;
  created_at: number;
}

/** The answer to a POST with an `Idempotency-Key`. */
export interface KeptAnswerTable {
  id: string;
  org_id: string;
  token_id: string;
  /** Of the key, and of method, path and body: HMAC-SHA256 under a key that the caller's token yields. */
  key_hash: string;
  request_hash: string;
  /** The node that works on it. */
  owner: string;
  /** Null while in flight. */
  sealed: string | null;
  created_at: number;
  expires_at: number;
}

/** A GPU of a host, or a part of one. */
export interface GpuAllocationTable {
  host: string;
  pci: string;
  /** Empty: the whole card. */
  mig_uuid: string;
  attach: string;
  org_id: string;
  instance_id: string;
  /** A change that is under way wants it; null: the instance has it. */
  reserved_until: number | null;
}

/** What a change that is under way adds to an instance; it counts until then. */
export interface GrowthReservationTable {
  instance_id: string;
  org_id: string;
  cpu_cores: number;
  memory_gb: number;
  disk_gb: number;
  reserved_until: number;
}

export interface PlacingLockTable {
  id: number;
}

export type InstanceRow = Selectable<InstanceTable>;
export type InstanceKeyRow = Selectable<InstanceKeyTable>;
export type SnapshotRow = Selectable<SnapshotTable>;
export type OperationRow = Selectable<OperationTable>;
export type TokenRow = Selectable<TokenTable>;
export type UserRow = Selectable<UserTable>;
export type AuditRow = Selectable<AuditTable>;
export type QuotaRow = Selectable<QuotaTable>;
export type InstancePortRow = Selectable<InstancePortTable>;
export type KeyRow = Selectable<KeyTable>;
export type GpuAllocationRow = Selectable<GpuAllocationTable>;
export type GrowthReservationRow = Selectable<GrowthReservationTable>;
export type KeptAnswerRow = Selectable<KeptAnswerTable>;
