import { EngineError } from '../engines/engine.ts';
import type { Db } from '../store/database.ts';
import { getInstance, moveInstance } from '../store/instances.ts';
import type { OperationRow, SnapshotRow } from '../store/schema.ts';
import { deleteSnapshotRow, getSnapshot, updateSnapshot } from '../store/snapshots.ts';
import type { ServiceContext } from './context.ts';
import {
  isFinalEngineError,
  type OperationKind,
  operationDeadlines,
  type Step,
} from './operations.ts';

/** The slow work on snapshots. `changed` is called with the organization whose list is not what it was. */
export function snapshotOperations(
  context: ServiceContext,
  changed: (orgId: string) => void,
): OperationKind[] {
  const onChange = (operation: OperationRow) => changed(operation.org_id);
  return [
    {
      kind: 'snapshot.create',
      deadlineMs: operationDeadlines['snapshot.create'],
      steps: [copyStep(context)],
      isFinal: isFinalEngineError,
      succeed: async (tx, operation) => {
        await updateSnapshot(tx, operation.subject_id, { status: 'READY' });
        await resumeInstance(tx, operation, context.now());
      },
      fail: async (tx, operation) => {
        await updateSnapshot(tx, operation.subject_id, { status: 'FAILED' });
        await resumeInstance(tx, operation, context.now());
      },
      changed: onChange,
    },
    {
      kind: 'snapshot.delete',
      deadlineMs: operationDeadlines['snapshot.delete'],
      steps: [removeStep(context)],
      succeed: (tx, operation) => deleteSnapshotRow(tx, operation.subject_id),
      fail: async () => {},
      changed: onChange,
    },
  ];
}

/** The instance is what it was before; if it died meanwhile, the monitor finds out and starts it. */
async function resumeInstance(tx: Db, operation: OperationRow, now: number): Promise<void> {
  await moveInstance(tx, operation.lock_id, 'SNAPPING', { status: 'RUNNING', status_since: now });
}

function copyStep({ store, engine }: ServiceContext): Step {
  return {
    name: 'copy',
    run: async (operation) => {
      const snapshot = await requireSnapshot(store.db, operation);
      const instance = await getInstance(store.db, operation.lock_id);
      if (!instance) throw new EngineError('not_running', 'The instance is gone.');
      await engine.createSnapshot(instance.engine_ref, snapshot.engine_ref);
    },
    undo: async (operation) => {
      await engine.deleteSnapshot((await requireSnapshot(store.db, operation)).engine_ref);
    },
  };
}

function removeStep({ store, engine }: ServiceContext): Step {
  return {
    name: 'copy',
    run: async (operation) => {
      await engine.deleteSnapshot((await requireSnapshot(store.db, operation)).engine_ref);
    },
  };
}

async function requireSnapshot(db: Db, operation: OperationRow): Promise<SnapshotRow> {
  const snapshot = await getSnapshot(db, operation.subject_id);
  if (!snapshot) throw new Error(`operation ${operation.id} lost its snapshot`);
  return snapshot;
}
