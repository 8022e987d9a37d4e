import type { EngineInventory, EngineRef } from '../engines/engine.ts';
import type { Db } from '../store/database.ts';
import { filterInstanceRefs } from '../store/instances.ts';
import { filterSnapshotRefs } from '../store/snapshots.ts';
import type { ServiceContext } from './context.ts';

/** So many names are asked for at once. */
const chunk = 500;

/** Something that the engine holds in our name and the database does not know. */
export interface Stray {
  readonly kind: 'instance' | 'snapshot';
  readonly ref: EngineRef;
}

/** What was deleted after the inventory was taken may be among them: only what shows twice in a row is one. */
export async function findStrays(db: Db, inventory: EngineInventory): Promise<Stray[]> {
  const instances = await unknown([...inventory.instances.keys()], (refs) =>
    filterInstanceRefs(db, refs),
  );
  const snapshots = await unknown([...inventory.snapshots], (refs) => filterSnapshotRefs(db, refs));
  return [
    ...instances.map((ref) => ({ kind: 'instance' as const, ref })),
    ...snapshots.map((ref) => ({ kind: 'snapshot' as const, ref })),
  ];
}

async function unknown(
  refs: readonly EngineRef[],
  filter: (refs: readonly EngineRef[]) => Promise<EngineRef[]>,
): Promise<EngineRef[]> {
  const known = new Set<EngineRef>();
  for (let from = 0; from < refs.length; from += chunk)
    for (const ref of await filter(refs.slice(from, from + chunk))) known.add(ref);
  return refs.filter((ref) => !known.has(ref));
}

/** Tells the log of each once, and touches none: the database may be an older one that was restored. */
export class StrayReporter {
  readonly #context: ServiceContext;
  /** Names that the database had: asked for once. */
  #known = new Set<EngineRef>();
  #seen = new Set<EngineRef>();
  readonly #reported = new Set<EngineRef>();

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  async look({ instances, snapshots }: EngineInventory): Promise<void> {
    const { store, log } = this.#context;
    const rest = {
      instances: new Map([...instances].filter(([ref]) => !this.#known.has(ref))),
      snapshots: snapshots.difference(this.#known),
    };
    const strays = await findStrays(store.db, rest);
    const seen = new Set(strays.map(({ ref }) => ref));
    this.#known = new Set([...instances.keys(), ...snapshots]).difference(seen);
    for (const stray of strays) {
      if (!this.#seen.has(stray.ref) || this.#reported.has(stray.ref)) continue;
      this.#reported.add(stray.ref);
      log.warn(stray, 'the engine has something that the database does not know; it is left alone');
    }
    this.#seen = seen;
  }
}
