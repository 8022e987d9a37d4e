/** An Incus of its own, a service on it, and the raw calls that the service is measured against. */

import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureIncusPackages } from '../scripts/incus-packages.ts';
import { openAdmin } from '../src/admin.ts';
import { type Client, createClient } from '../src/api/client.ts';
import type { Instance } from '../src/api/instances.ts';
import type { IncusPlace } from '../test/support/incus.ts';
import { openPrivateIncus } from '../test/support/incus-host.ts';
import { firstWord } from './rig.ts';

export const size = { cpu_cores: 1, disk_size_gb: 5, gpu_type: 'cpu', num_gpus: 1 } as const;
const sshPorts = { from: 24_000, to: 24_150 };

export interface IncusRig {
  readonly client: Client;
  readonly url: string;
  readonly token: string;
  readonly place: IncusPlace;
  readonly folder: string;
  /** The daemon's state folder, for the program `incus`. */
  readonly incusDir: string;
  close(): Promise<void>;
}

/** A reason where Incus cannot be had. */
export async function openIncusRig(say: (line: string) => void): Promise<IncusRig | string> {
  if (process.getuid?.() !== 0) return 'Incus is started by root only';
  if (!ensureIncusPackages(say)) return 'Incus is not installed and could not be';
  const incus = await openPrivateIncus(say);
  Object.assign(process.env, incus.environment);
  const { openIncusPlace } = await import('../test/support/incus.ts');
  const place = await openIncusPlace();
  const folder = mkdtempSync(join(tmpdir(), 'berth-bench-'));
  chmodSync(folder, 0o711);
  const env = { ...process.env, ...settings(place, folder) };
  const child = spawn(process.execPath, ['src/cli/main.ts', 'serve'], {
    cwd: join(import.meta.dirname, '..'),
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const url = await firstWord(child);
  const token = await makeToken(env);
  const incusDir = place.url.replace(/^unix:/, '').replace(/\/unix\.socket$/, '');
  const close = async () => {
    await end(child);
    await place.remove();
    await incus.remove();
    rmSync(folder, { recursive: true, force: true });
  };
  const client = createClient({ baseUrl: url, token });
  return { client, url, token, place, folder, incusDir, close };
}

const settings = (place: IncusPlace, folder: string) => ({
  BERTH_DATA: folder,
  BERTH_PORT: '0',
  BERTH_LOG_LEVEL: 'error',
  BERTH_SSH_PORTS: `${sshPorts.from}-${sshPorts.to}`,
  BERTH_ENGINE: 'incus',
  BERTH_INCUS_URL: place.url,
  BERTH_INCUS_POOL: place.pool,
  BERTH_INCUS_NETWORK: place.network,
  BERTH_INCUS_PROJECT: place.project,
  BERTH_OVERCOMMIT: 'cpu=1000,memory=1000,disk=1000',
});

async function makeToken(env: Record<string, string | undefined>): Promise<string> {
  const admin = await openAdmin(env);
  try {
    await admin.organizations.create({ name: 'bench', email: 'bench@localhost' });
    return (await admin.tokens.create({ organization: 'bench', name: 'bench' })).token;
  } finally {
    await admin.close();
  }
}

async function end(child: ChildProcess): Promise<void> {
  const ended = new Promise((done) => child.once('exit', done));
  child.kill('SIGTERM');
  await ended;
}

/** Looks every few milliseconds until it is RUNNING. */
export async function untilRunning(client: Client, uuid: string): Promise<Instance> {
  for (;;) {
    const instance = await client.getInstance(uuid);
    if (instance.status === 'RUNNING') return instance;
    if (instance.failure) throw new Error(instance.failure);
    await sleep(5);
  }
}

/** Resolves when it does not exist any more, for Incus either. */
export async function remove({ client, place }: IncusRig, uuid: string): Promise<void> {
  await client.deleteInstance(uuid);
  for (;;) {
    const { project } = place;
    const names = await place.client.get<string[]>('/1.0/instances', { project });
    if (!names.some((name) => name.includes(uuid))) return;
    await sleep(20);
  }
}
