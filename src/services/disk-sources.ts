import { type Catalog, findTemplate, type Template } from '../domain/catalog.ts';
import { AppError, conflict, invalidRequest } from '../domain/errors.ts';
import { type DiskSource, type EngineCapabilities, EngineError } from '../engines/engine.ts';
import type { Db } from '../store/database.ts';
import type { InstanceRow, SnapshotRow } from '../store/schema.ts';
import { findSnapshotByName, getSnapshot } from '../store/snapshots.ts';
import { shorten } from './context.ts';

/** What a new disk starts from, by the names that callers know. */
export interface NamedSource {
  /** A template's key, or the name of the snapshot. */
  readonly name: string;
  readonly snapshot: SnapshotRow | undefined;
  /** The only hosts that it may be placed on; empty: any. */
  readonly hosts: readonly string[];
  /** Of a snapshot only the engine knows. */
  readonly isVirtualMachine: boolean;
}

interface Wish {
  readonly orgId: string;
  readonly template: string;
  readonly diskSizeGb: number;
}

/** A template (key, then display name), else a READY snapshot of the organization. Throws what the caller has to change. */
export async function resolveSource(
  tx: Db,
  wish: Wish,
  catalog: Catalog,
  capabilities: EngineCapabilities,
): Promise<NamedSource> {
  const startable = catalog.templates.filter((one) => capabilities.templates.includes(one.source));
  const template = findTemplate(catalog, wish.template);
  if (template) {
    const name = requireStartable(template, startable, capabilities);
    const isVirtualMachine = capabilities.virtualMachines.includes(template.source);
    return { name, snapshot: undefined, hosts: template.hosts, isVirtualMachine };
  }
  const snapshot = await findSnapshotByName(tx, wish.orgId, wish.template);
  if (!snapshot) {
    throw invalidRequest(
      `The field "template" is "${shorten(wish.template)}", but must be a template (${keysOf(startable)}) or the name of a READY snapshot.`,
    );
  }
  if (snapshot.status !== 'READY') {
    throw conflict(
      `The snapshot "${snapshot.name}" is ${snapshot.status}; only a READY one can be restored.`,
    );
  }
  if (wish.diskSizeGb < snapshot.minimum_disk_size_gb) {
    throw invalidRequest(
      `The field "disk_size_gb" is ${wish.diskSizeGb}, but the snapshot "${snapshot.name}" needs at least ${snapshot.minimum_disk_size_gb}.`,
    );
  }
  return { name: snapshot.name, snapshot, hosts: [], isVirtualMachine: false };
}

function requireStartable(
  template: Template,
  startable: readonly Template[],
  capabilities: EngineCapabilities,
): string {
  if (startable.includes(template)) return template.key;
  if (capabilities.templates.length === 0)
    throw new AppError(
      'unavailable',
      'There is nothing to start an instance from: the engine cannot be reached, or it has no image yet. Try again in a minute, or ask the operator.',
    );
  throw invalidRequest(
    `The field "template" is "${template.key}", which this host cannot start; it has: ${keysOf(startable)}.`,
  );
}

const keysOf = (templates: readonly Template[]): string =>
  templates.map((template) => template.key).join(', ') || 'none now';

/** The same in the engine's words. The catalog may have changed since the instance was accepted. */
export async function engineSource(
  db: Db,
  instance: InstanceRow,
  catalog: Catalog,
): Promise<DiskSource> {
  if (instance.snapshot_id === null) {
    const template = catalog.templates.find((known) => known.key === instance.template);
    if (template) return { kind: 'template', template: template.source };
    throw new EngineError('failed', `The catalog has no template "${instance.template}" any more.`);
  }
  const snapshot = await getSnapshot(db, instance.snapshot_id);
  if (!snapshot) throw new EngineError('failed', 'The snapshot to restore is gone.');
  return { kind: 'snapshot', snapshotRef: snapshot.engine_ref };
}
