/** Opens sandbox engines in folders of their own. */

import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSandboxEngine, type SandboxOptions } from '../../src/engines/sandbox/sandbox.ts';
import type { OpenedEngine } from './engine-contract.ts';

/** A folder that the user of the instances can pass through, as it cannot with what mkdtemp makes. */
export function makeDataFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sandbox-test-'));
  chmodSync(folder, 0o711);
  return folder;
}

export function sandboxOptions(
  dataDir: string,
  overrides: Partial<SandboxOptions> = {},
): SandboxOptions {
  return {
    dataDir,
    listenAddress: '127.0.0.1',
    allowUnconfinedShells: false,
    network: 'auto',
    sandboxUser: 'berth-sandbox',
    log: () => undefined,
    ...overrides,
  };
}

export async function openSandbox(
  dataDir: string,
  overrides: Partial<SandboxOptions> = {},
): Promise<OpenedEngine> {
  const engine = await createSandboxEngine(sandboxOptions(dataDir, overrides));
  const cleanup = async (): Promise<void> => {
    await engine.close({ keepRunning: false });
    const { instances, snapshots } = await engine.inventory();
    for (const ref of instances.keys()) await engine.delete(ref);
    for (const ref of snapshots) await engine.deleteSnapshot(ref);
    rmSync(dataDir, { recursive: true, force: true });
  };
  return { engine, cleanup };
}
