/**
 * Makes, copies and removes disks.
 *
 * Copying and removing walk through files that a guest arranged, so they run as the guest's user and
 * never as root. A guest may have closed its own folders (chmod 000); in a user namespace of its own
 * the walking tool has the right to pass over modes, for files of that one user only.
 */

import {
  chmod,
  chown,
  lchown,
  mkdir,
  readFile,
  rm,
  rmdir,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { runCommand } from './commands.ts';
import { requireSuccess } from './failures.ts';
import type { Host } from './host.ts';
import { isThere } from './layout.ts';

const COPY_TIMEOUT_MS = 30 * 60_000;
const SYNC_TIMEOUT_MS = 5 * 60_000;
const REMOVE_TIMEOUT_MS = 10 * 60_000;

export const BASE_TEMPLATE = 'base';

const FOLDERS: readonly (readonly [path: string, mode: number])[] = [
  ['etc', 0o755],
  ['etc/ssl', 0o755],
  ['home', 0o755],
  ['home/ubuntu', 0o755],
  ['home/ubuntu/.ssh', 0o700],
  ['var', 0o755],
  ['var/cache', 0o755],
  ['var/lib', 0o755],
  ['var/log', 0o755],
  ['var/tmp', 0o1777],
  ['tmp', 0o1777],
];

const LINKS: readonly (readonly [path: string, target: string])[] = [
  ['etc/os-release', '../usr/lib/os-release'],
  ['etc/mtab', '../proc/self/mounts'],
  ['var/run', '/run'],
  ['var/lock', '/run/lock'],
];

/** Taken from the host where it has them and anyone may read them. */
const HOST_COPIES: readonly (readonly [path: string, source: string])[] = [
  ...['profile', 'bash.bashrc', 'inputrc', 'shells', 'localtime', 'timezone', 'debian_version'].map(
    (name): [string, string] => [`etc/${name}`, `/etc/${name}`],
  ),
  ...['.bashrc', '.profile', '.bash_logout'].map((name): [string, string] => [
    `home/ubuntu/${name}`,
    `/etc/skel/${name}`,
  ]),
];

const NAME_SERVICES =
  'passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n';

/** Fills a new, empty folder with the template; the caller gives it its owner's mode. */
export async function buildBaseDisk(disk: string, host: Host): Promise<void> {
  for (const [path, mode] of FOLDERS) {
    await mkdir(join(disk, path));
    await chmod(join(disk, path), mode);
  }
  for (const [path, target] of LINKS) await symlink(target, join(disk, path));
  const copied: string[] = [];
  for (const [path, source] of HOST_COPIES) {
    if (await copyPublicFile(source, join(disk, path))) copied.push(path);
  }
  await writeFile(join(disk, 'etc/nsswitch.conf'), NAME_SERVICES, { flag: 'wx' });
  const paths = [...FOLDERS, ...LINKS].map(([path]) => path);
  await own(disk, [...paths, ...copied, 'etc/nsswitch.conf'], host);
}

async function copyPublicFile(source: string, target: string): Promise<boolean> {
  if (!(await isThere(source))) return false;
  const { mode } = await stat(source);
  if ((mode & 0o004) === 0) return false;
  await writeFile(target, await readFile(source), { flag: 'wx', mode: 0o644 });
  return true;
}

async function own(disk: string, paths: readonly string[], { users }: Host): Promise<void> {
  if (users.dropTo === undefined) return;
  for (const path of paths) await lchown(join(disk, path), users.guest.uid, users.guest.gid);
}

/** An empty folder for a disk, which belongs to the guest user. */
export async function makeDiskFolder(disk: string, { users }: Host): Promise<void> {
  await mkdir(disk, { mode: 0o700 });
  if (users.dropTo !== undefined) await chown(disk, users.guest.uid, users.guest.gid);
}

/** Copies everything in one disk to an empty one; reflinks where the file system has them. */
export async function copyDisk(from: string, to: string, host: Host): Promise<void> {
  // Relative paths, so that no command line but a sandbox's own names the folder of an instance.
  const args = ['-a', '--reflink=auto', '--', `${from}/.`, '.'];
  const result = await runAsGuest('/bin/cp', args, to, COPY_TIMEOUT_MS, host);
  requireSuccess(result, 'The disk could not be copied.');
}

/** Returns when everything under the disk would survive a loss of power. */
export async function syncDisk(disk: string, { users }: Host): Promise<void> {
  const options = { identity: users.dropTo, directory: disk, timeoutMs: SYNC_TIMEOUT_MS };
  requireSuccess(
    await runCommand('/bin/sync', ['-f', '.'], options),
    'The disk could not be written to storage.',
  );
}

/** Removes what `takeAway` or an interrupted build left: the guest's part as the guest, then the rest. */
export async function removeTree(path: string, host: Host): Promise<void> {
  const disk = join(path, 'disk');
  if (await isThere(disk)) {
    const args = ['-rf', '--one-file-system', '--', 'etc', 'home', 'var', 'tmp'];
    const result = await runAsGuest('/bin/rm', args, disk, REMOVE_TIMEOUT_MS, host);
    requireSuccess(result, 'The disk could not be removed.');
    await rmdir(disk);
  }
  await rm(path, { recursive: true, force: true });
}

function runAsGuest(
  file: string,
  args: readonly string[],
  directory: string,
  timeoutMs: number,
  { users, tools, pastFileModes }: Host,
): ReturnType<typeof runCommand> {
  const options = { identity: users.dropTo, directory, timeoutMs };
  if (!pastFileModes || tools.unshare === undefined) return runCommand(file, args, options);
  return runCommand(tools.unshare, ['--user', '--map-root-user', '--', file, ...args], options);
}
