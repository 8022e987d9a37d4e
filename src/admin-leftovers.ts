/** Instances in Incus that the database does not know: left by data that are gone, or of another Berth. */

import { existsSync } from 'node:fs';
import type { Config } from './config.ts';
import { engineOfData } from './data-folder.ts';
import { type Finding, weak } from './domain/findings.ts';
import { deletionCommands, type Held } from './engines/incus/leftovers.ts';
import { findStrays } from './services/strays.ts';
import { openStore } from './store/database.ts';

export const hasDatabase = ({ databaseUrl }: Config): boolean =>
  existsSync(databaseUrl.replace(/^sqlite:/, ''));

/** Of another engine's data, or of none, it would seem that nothing in Incus is anybody's. */
export const hasDataOfEngine = (config: Config): boolean =>
  hasDatabase(config) && engineOfData(config.dataDir) === config.engine;

/** Those that the database of the settings does not know. */
export async function findUnknown(config: Config, held: readonly Held[]): Promise<Held[]> {
  if (held.length === 0) return [];
  const refs = (kind: string) => held.filter((one) => one.kind === kind).map(({ ref }) => ref);
  const store = await openStore(config.databaseUrl);
  try {
    const stopped = { state: 'stopped' } as const;
    const strays = await findStrays(store.db, {
      instances: new Map(refs('instance').map((ref) => [ref, stopped])),
      snapshots: new Set(refs('snapshot')),
    });
    return held.filter(({ kind, ref }) =>
      strays.some((stray) => stray.kind === kind && stray.ref === ref),
    );
  } finally {
    await store.close();
  }
}

export function leftoverFindings(unknown: readonly Held[], dataDir: string): Finding[] {
  if (unknown.length === 0) return [];
  const found = `${listNames(unknown)}: not in the data of ${dataDir}`;
  return [weak('leftovers', found, leftoverAdvice(unknown))];
}

export const listNames = (held: readonly Held[]): string => held.map(({ name }) => name).join(', ');

export const leftoverAdvice = (held: readonly Held[]): string =>
  `If no other Berth uses this Incus, remove what was left there: ${deletionCommands(held).join('; ')}`;
