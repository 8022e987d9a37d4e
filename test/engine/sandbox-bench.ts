/** Opens sandbox engines in folders of their own. */

import { rmSync } from 'node:fs';
import { createSandboxEngine, type SandboxOptions } from '../../src/engines/sandbox/sandbox.ts';
import type { OpenedEngine } from './engine-contract.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

export function makeDataFolder(): string {
  return makeTemporaryFolder('sandbox-test-');
}

export function sandboxOptions(
  dataDir: string,
  overrides: Partial<SandboxOptions> = {},
): SandboxOptions {
  return {
    dataDir,
    listenAddress: '127.0.0.1',
    portsAddress: '127.0.0.1',
    allowUnconfinedShells: false,
    // The suite may be run for either kind of network.
    network: process.env.BERTH_SANDBOX_NETWORK === 'host' ? 'host' : 'auto',
    limits: 'auto',
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
    const { instances, snapshots } = await engine.inventory();
    await engine.close({ stop: [...instances.keys()] });
    for (const ref of instances.keys()) await engine.delete(ref);
    for (const ref of snapshots) await engine.deleteSnapshot(ref);
    rmSync(dataDir, { recursive: true, force: true });
  };
  return { engine, cleanup };
}
