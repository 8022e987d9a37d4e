/**
 * A private Incus for one run of the tests: a daemon, a pool and an image in a folder of their own. A process that
 * waits beside it removes all of it when this one ends, in whatever way (incus-removal.ts).
 */

import { existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import {
  type Daemon,
  type DaemonOptions,
  ensureIncusDaemon,
  hasSystemd,
  lastWords,
  lxcfsDir,
  stopIncusDaemon,
} from '../../scripts/incus-daemon.ts';
import { IncusClient } from '../../src/engines/incus/client.ts';
import type { IncusServer } from './incus.ts';
import { importImage, makePool } from './incus-contents.ts';
import {
  abandonedFolders,
  folderOf,
  noteLxcfs,
  prefixOf,
  removeIncus,
  stateFolderOf,
} from './incus-removal.ts';
import { allProcesses, endProcess } from './processes.ts';
import { startRemover } from './remover.ts';

type Say = (line: string) => void;

export interface PrivateIncus {
  /** What test/support/incus.ts reads. */
  readonly environment: Readonly<Record<string, string>>;
  readonly server: IncusServer;
  readonly logFile: string;
  /** Of the daemon, as long as it is there. */
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void;
  /** Ends the daemon the hard way; its guests go on. */
  kill(): Promise<void>;
  /** Starts the daemon again; resolves when it is ready. */
  restart(): Promise<void>;
  /** The end of its log when it has ended; undefined while it runs. */
  lastWords(): string | undefined;
  /** Removes it; resolves when nothing of it is left. */
  remove(): Promise<void>;
}

const REMOVAL = join(import.meta.dirname, 'incus-removal.ts');

/**
 * Killed while a guest ends, Incus 6.0 may find a cable on a bridge that is gone a moment later. It gives that bridge up
 * until somebody ends its dnsmasq and starts it once more, as an operator would.
 */
async function startWithNetworks(options: DaemonOptions): Promise<Daemon> {
  for (let tries = 1; ; tries += 1) {
    const daemon = await ensureIncusDaemon(options);
    if (tries === 3 || (await hasItsNetworks(daemon))) return daemon;
    options.say?.('Incus gave a bridge up: starting it again ...');
    await stopIncusDaemon(daemon, { signal: 'SIGTERM' });
    const folder = join(options.incusDir, 'networks');
    for (const { pid, command } of allProcesses())
      if (command.includes('dnsmasq') && command.includes(`${folder}/`)) endProcess(pid);
  }
}

const clientAt = (url: string): IncusClient =>
  new IncusClient({ endpoints: [url], tls: undefined, project: 'default' });

async function hasItsNetworks({ socketPath }: Daemon): Promise<boolean> {
  const client = clientAt(`unix:${socketPath}`);
  try {
    const query = { recursion: '1' };
    const all = await client.get<{ status: string }[]>('/1.0/networks', { query });
    return all.every(({ status }) => status !== 'Unavailable');
  } finally {
    client.close();
  }
}

/**
 * `door`: its clients come in by a way that is shut from a kill until it has all of its networks again. While it is
 * without one, a service would give up what it was to start there.
 */
export async function openPrivateIncus(
  say: Say,
  { door = false }: { readonly door?: boolean } = {},
): Promise<PrivateIncus> {
  for (const folder of abandonedFolders()) {
    say(`Removing what an earlier run left in ${folder} ...`);
    await removeIncus(folder);
  }
  const folder = folderOf(process.pid);
  mkdirSync(folder, { mode: 0o711 });
  const endRemover = startRemover(REMOVAL, folder);
  let restarting: Promise<unknown> = Promise.resolve();
  const remove = async (): Promise<void> => {
    // Else it would come up again in what is being removed.
    await restarting.catch(() => undefined);
    await endRemover();
    if (existsSync(folder)) say(`Not everything of ${folder} could be removed.`);
  };
  try {
    const logFile = join(folder, 'incusd.log');
    const hadLxcfs = existsSync(join(lxcfsDir, 'proc'));
    const options = { incusDir: stateFolderOf(folder), logFile, say };
    let daemon: Daemon = await ensureIncusDaemon(options);
    if (!hadLxcfs && !hasSystemd()) noteLxcfs(folder);
    const doorway = join(folder, 'open');
    const shut = () => rmSync(doorway, { force: true });
    const open = () => {
      shut();
      symlinkSync(daemon.incusDir, doorway);
    };
    open();
    const url = `unix:${door ? join(doorway, basename(daemon.socketPath)) : daemon.socketPath}`;
    const client = clientAt(url);
    const pool = await makePool(client, daemon.incusDir, say);
    await importImage(client, pool, say);
    client.close();
    const server: IncusServer = { url, pool, prefix: prefixOf(folder) };
    return {
      environment: {
        BERTH_TEST_INCUS_URL: url,
        BERTH_TEST_INCUS_POOL: pool,
        BERTH_TEST_INCUS_NETWORK: server.prefix,
      },
      server,
      logFile,
      signal: (signal) => void (daemon.pid && process.kill(daemon.pid, signal)),
      kill: async () => {
        await stopIncusDaemon(daemon, { signal: 'SIGKILL' });
        shut();
      },
      restart: async () => {
        const starting = startWithNetworks(options);
        restarting = starting;
        daemon = await starting;
        open();
      },
      lastWords: () => lastWords(options, daemon),
      remove,
    };
  } catch (error) {
    await remove();
    throw error;
  }
}
