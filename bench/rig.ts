import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { openAdmin } from '../src/admin.ts';
import { openStore } from '../src/store/database.ts';
import { insertSnapshot } from '../src/store/snapshots.ts';

/** A service of its own, in a process of its own, with one organization for each question. */
export interface Rig {
  readonly url: string;
  readonly dataDir: string;
  /** A token of a new organization that has this many snapshots. */
  organization(snapshots: number): Promise<string>;
  /** Starts a script of this folder; resolves with the last word of the first line it prints. */
  start(script: string, args: readonly string[]): Promise<{ word: string; stop: () => void }>;
  close(): Promise<void>;
}

const root = resolve(import.meta.dirname, '..');

export async function openRig(): Promise<Rig> {
  const dataDir = mkdtempSync(join(tmpdir(), 'berth-bench-'));
  chmodSync(dataDir, 0o711);
  const settings = {
    BERTH_DATA: dataDir,
    BERTH_PORT: '0',
    BERTH_SSH_PORTS: '21000-21099',
    BERTH_SANDBOX_ON_EXIT: 'stop',
  };
  const env = { ...process.env, ...settings };
  const children: ChildProcess[] = [];
  const begin = async (args: readonly string[]) => {
    const child = spawn(process.execPath, args, {
      cwd: root,
      env,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    children.push(child);
    return { word: await firstWord(child), stop: () => void child.kill('SIGTERM') };
  };
  const { word: url } = await begin(['src/cli/main.ts', 'serve']);
  return {
    url,
    dataDir,
    organization: (snapshots) => addOrganization(env, snapshots),
    start: (script, args) => begin([join('bench', script), ...args]),
    close: async () => {
      await Promise.all(children.map(ended));
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((done) => {
    if (child.exitCode !== null || child.signalCode !== null) return done();
    child.once('exit', () => done());
    child.kill('SIGTERM');
  });
}

/** The last word of the first line that it prints. */
export async function firstWord(child: ChildProcess): Promise<string> {
  if (!child.stdout) throw new Error('no output to read');
  for await (const line of createInterface({ input: child.stdout }))
    return line.split(' ').at(-1) ?? '';
  throw new Error('the process ended before it was ready');
}

async function addOrganization(
  env: Record<string, string | undefined>,
  snapshots: number,
): Promise<string> {
  const admin = await openAdmin(env);
  const store = await openStore(`sqlite:${env.BERTH_DATA}/berth.db`);
  const name = `bench-${snapshots}`;
  try {
    const { id } = await admin.organizations.create({ name, email: 'bench@localhost' });
    await store.transaction(async (tx) => {
      for (let number = 0; number < snapshots; number++)
        await insertSnapshot(tx, snapshotRow(id, number));
    });
    return (await admin.tokens.create({ organization: name, name })).token;
  } finally {
    await store.close();
    await admin.close();
  }
}

function snapshotRow(orgId: string, number: number) {
  return {
    id: crypto.randomUUID(),
    org_id: orgId,
    instance_id: 'none',
    engine_ref: crypto.randomUUID(),
    name: `nightly-${number}`,
    status: 'READY' as const,
    minimum_disk_size_gb: 10,
    created_at: 1_763_600_000_000 + number,
    deleted_at: null,
  };
}
