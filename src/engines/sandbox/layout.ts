/**
 * Where everything of the engine lies, and who may touch it.
 *
 *   <root>/instances/<ref>/disk/{etc,home,var,tmp}   what the guest owns
 *   <root>/instances/<ref>/system/                   what the engine puts over it: host keys, passwd, hostname ...
 *   <root>/snapshots/<ref>/disk/...                  a copy of a disk
 *   <root>/work/<random>/                            being built or being removed; emptied when the engine opens
 *
 * A thing is complete when it stands under its own name: it is built in `work` and renamed into place,
 * and it is renamed back into `work` to be removed.
 *
 * When the service is root, guests and everything that walks through their files run as an unprivileged
 * user. That user may pass through these folders (mode 0710, its group), owns each disk, and can change
 * nothing else: a folder of the engine never belongs to whoever a guest might become.
 */

import { createHash, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  access,
  chmod,
  chown,
  constants,
  mkdir,
  open,
  readdir,
  realpath,
  rename,
  stat,
  symlink,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { EngineError, type EngineRef } from '../engine.ts';
import { type Identity, runCommand } from './commands.ts';
import { asEngineError, codeOf } from './failures.ts';

export interface Layout {
  readonly instances: string;
  readonly snapshots: string;
  readonly work: string;
  /** Set when the disks could not lie in the data folder: a sentence for the operator. */
  readonly notice?: string;
}

/** Who the service is and whom its guests run as. */
export interface Users {
  /** Owner of every disk. */
  readonly guest: Identity;
  /** To be passed to whatever runs as the guest user; absent when that is the service's own user. */
  readonly dropTo: Identity | undefined;
}

const ELSEWHERE = '/var/lib/berth-sandbox';
const SAFE_REF = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export function entryPath(parent: string, ref: EngineRef): string {
  if (!SAFE_REF.test(ref)) {
    throw new EngineError('failed', 'The name of an instance or a snapshot is not valid.', {
      detail: `ref ${JSON.stringify(ref)}`,
    });
  }
  return join(parent, ref);
}

/** Makes the folders where they are missing, and finds the place that the guest user can reach. */
export async function openLayout(dataDirectory: string, users: Users): Promise<Layout> {
  try {
    await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
    const wanted = join(await realpath(dataDirectory), 'sandbox');
    const { root, notice } = await chooseRoot(wanted, users);
    const layout = {
      instances: join(root, 'instances'),
      snapshots: join(root, 'snapshots'),
      work: join(root, 'work'),
    };
    for (const path of Object.values(layout)) await makeEngineFolder(path, users);
    return notice === undefined ? layout : { ...layout, notice };
  } catch (error) {
    const problem = asEngineError(error, '');
    if (problem.kind !== 'failed') throw problem;
    throw new EngineError(
      'unavailable',
      `The data folder ${dataDirectory} cannot be used for instances (${codeOf(error) ?? 'unknown error'}). Give it to the user of the service, or choose another one.`,
      { cause: error },
    );
  }
}

/**
 * Root's own home is closed to others on most systems, and a checkout often lies there. The guest user
 * could not reach its disks, so they go to /var/lib and a symbolic link in the data folder says where.
 */
async function chooseRoot(
  wanted: string,
  users: Users,
): Promise<{ root: string; notice?: string }> {
  if (!existsSync(wanted)) {
    await letGuestPass(dirname(wanted), users);
    if (!(await canReach(dirname(wanted), users))) await placeElsewhere(wanted, users);
  }
  if (!existsSync(wanted)) await makeEngineFolder(wanted, users);
  const root = await realpath(wanted);
  if (!(await canReach(root, users))) throw unreachable(root);
  if (root === wanted) return { root };
  return {
    root,
    notice: `The disks of instances lie in ${root}, because the data folder is closed to the user they run as.`,
  };
}

function unreachable(path: string): EngineError {
  return new EngineError(
    'unavailable',
    'The user that instances run as cannot reach their disks. Choose another data folder, or permit passing (chmod o+x) on every folder above it.',
    { detail: path },
  );
}

/** The data folder is the service's own, so its group may be changed; what lies above it may not. */
async function letGuestPass(directory: string, users: Users): Promise<void> {
  if (users.dropTo === undefined) return;
  const { mode, uid } = await stat(directory);
  if (uid !== process.getuid?.() || (mode & 0o001) !== 0) return;
  await chown(directory, uid, users.guest.gid);
  await chmod(directory, (mode & 0o700) | 0o010);
}

async function canReach(directory: string, users: Users): Promise<boolean> {
  if (users.dropTo === undefined) return true;
  const script = 'cd "$1"';
  const result = await runCommand('/bin/sh', ['-c', script, 'reach', directory], {
    identity: users.dropTo,
    timeoutMs: 5_000,
  });
  return result.code === 0;
}

async function placeElsewhere(wanted: string, users: Users): Promise<void> {
  const name = createHash('sha256').update(wanted).digest('hex').slice(0, 16);
  await makeEngineFolder(ELSEWHERE, users);
  const root = join(ELSEWHERE, name);
  await makeEngineFolder(root, users);
  await symlink(root, wanted);
}

/** A folder that the guest user may pass through and nothing more. */
export async function makeEngineFolder(path: string, users: Users): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  }
  if (users.dropTo === undefined) return;
  await chown(path, process.getuid?.() ?? 0, users.guest.gid);
  await chmod(path, 0o710);
}

/** A new folder under `work`, gone by itself when the engine opens next. */
export async function makeWorkFolder(layout: Layout, users: Users): Promise<string> {
  const path = join(layout.work, randomBytes(9).toString('hex'));
  await makeEngineFolder(path, users);
  return path;
}

/** Moves what was built to its own name, and makes that survive a loss of power. */
export async function putInPlace(built: string, place: string): Promise<void> {
  await rename(built, place);
  await syncFolder(dirname(place));
}

/** Moves a complete thing to `work`, where it waits to be removed; undefined when it is gone already. */
export async function takeAway(place: string, layout: Layout): Promise<string | undefined> {
  const path = join(layout.work, randomBytes(9).toString('hex'));
  try {
    await rename(place, path);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  await syncFolder(dirname(place));
  return path;
}

export async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function isThere(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(
    () => true,
    () => false,
  );
}

/** The references that are complete in this folder. */
export async function listEntries(parent: string): Promise<EngineRef[]> {
  return (await readdir(parent)).filter((name) => SAFE_REF.test(name));
}
