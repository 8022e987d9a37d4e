/**
 * Reads and replaces `~/.ssh/authorized_keys` on the disk of a container that is stopped.
 *
 * SFTP acts as the guest's root and follows symbolic links in folders, so the way is looked at first, folder by
 * folder. Nothing in the guest runs that could change it meanwhile, and the engine does not start it meanwhile. The new
 * file is put in place by a rename, as sshd and a crash want it. SFTP in Incus has no fsync: the file is on storage when
 * the host has written it back, which a host does within half a minute.
 */

import type { Obstacle } from '../guest-conflicts.ts';
import type { IncusClient } from './client.ts';
import { sizeLimitBytes } from './guest-key-scripts.ts';
import { obstacleError } from './key-failures.ts';
import type { Place } from './names.ts';
import { type FileFacts, Sftp } from './sftp.ts';

const owner = 1000;
const folder = '/home/ubuntu/.ssh';
const file = `${folder}/authorized_keys`;
const temporary = `${folder}/.authorized_keys.new`;
const writableByOthers = 0o022;

const kinds: ReadonlyMap<number, Obstacle> = new Map([
  [0o01, 'FIFO'],
  [0o02, 'device'],
  [0o04, 'folder'],
  [0o06, 'device'],
  [0o10, 'file'],
  [0o12, 'link'],
  [0o14, 'socket'],
]);

const kindOf = ({ mode }: FileFacts): Obstacle | undefined => kinds.get(mode >>> 12);

/** The bytes of the file; undefined when there is none. */
export function readStopped(
  client: IncusClient,
  place: Place,
  giveUpAt: number,
): Promise<Buffer | undefined> {
  return session(client, place, giveUpAt, async (sftp) => {
    const facts = (await hasFolder(sftp)) ? await soundFile(sftp) : undefined;
    return facts && sftp.read(file, sizeLimitBytes);
  });
}

/** Puts `change` of what is there in its place, unless that is the same buffer. */
export function changeStopped(
  client: IncusClient,
  place: Place,
  giveUpAt: number,
  change: (before: Buffer | undefined) => Buffer | undefined,
): Promise<void> {
  return session(client, place, giveUpAt, async (sftp) => {
    const found = await hasFolder(sftp);
    const facts = found ? await soundFile(sftp) : undefined;
    const before = facts && (await sftp.read(file, sizeLimitBytes));
    const after = change(before);
    if (after === before || after === undefined) {
      if (facts) await mend(sftp, file, facts, 0o400);
      return;
    }
    if (!found) await makeFolder(sftp);
    await clear(sftp);
    await sftp.create(temporary, after);
    await sftp.chown(temporary, owner, owner);
    await sftp.chmod(temporary, sound(facts?.mode ?? 0o600, 0o400) & 0o777);
    await sftp.rename(temporary, file);
  });
}

async function session<T>(
  client: IncusClient,
  place: Place,
  giveUpAt: number,
  work: (sftp: Sftp) => Promise<T>,
): Promise<T> {
  const sftp = await Sftp.open(client, place, giveUpAt);
  try {
    return await work(sftp);
  } finally {
    sftp.close();
  }
}

/** Whether `~/.ssh` is there; throws when the way to it is not one of folders of its owner's. */
async function hasFolder(sftp: Sftp): Promise<boolean> {
  const parent = await sftp.lstat('/home');
  if (!parent || kindOf(parent) !== 'folder') throw obstacleError('~', 'moved');
  const home = await sftp.lstat('/home/ubuntu');
  if (!home) throw obstacleError('~', 'moved');
  await requireFolder(sftp, '/home/ubuntu', '~', home);
  const facts = await sftp.lstat(folder);
  if (facts) await requireFolder(sftp, folder, '~/.ssh', facts);
  return facts !== undefined;
}

async function requireFolder(
  sftp: Sftp,
  path: string,
  name: string,
  facts: FileFacts,
): Promise<void> {
  const kind = kindOf(facts);
  if (kind !== 'folder') throw obstacleError(name, kind ?? 'closed');
  if (facts.uid !== owner) throw obstacleError(name, 'foreign');
  await mend(sftp, path, facts, 0o700);
}

/** sshd turns every key away when others may write to it, or when its owner cannot read it. */
async function mend(sftp: Sftp, path: string, { mode }: FileFacts, needed: number): Promise<void> {
  const wanted = sound(mode, needed);
  if (wanted !== (mode & 0o7777)) await sftp.chmod(path, wanted);
}

const sound = (mode: number, needed: number): number =>
  (mode & 0o7777 & ~writableByOthers) | needed;

/** Undefined when there is none. */
async function soundFile(sftp: Sftp): Promise<FileFacts | undefined> {
  const name = '~/.ssh/authorized_keys';
  const facts = await sftp.lstat(file);
  if (facts === undefined) return undefined;
  const kind = kindOf(facts);
  if (kind !== 'file') throw obstacleError(name, kind ?? 'closed');
  if (facts.uid !== owner) throw obstacleError(name, 'foreign');
  if (facts.size > sizeLimitBytes) throw obstacleError(name, 'large');
  return facts;
}

async function makeFolder(sftp: Sftp): Promise<void> {
  await sftp.mkdir(folder);
  await sftp.chown(folder, owner, owner);
  await sftp.chmod(folder, 0o700);
}

/** What a crash left under the temporary name, or the guest put there. */
async function clear(sftp: Sftp): Promise<void> {
  const left = await sftp.lstat(temporary);
  if (left === undefined) return;
  if (kindOf(left) === 'folder') await sftp.rename(temporary, `${temporary}.${Date.now()}`);
  else await sftp.remove(temporary);
}
