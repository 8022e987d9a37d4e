/**
 * Makes, copies and removes disks.
 *
 * Copying and removing walk through files that a guest arranged, so they run as the guest's user and
 * never as root. A guest may have closed its own folders (chmod 000); in a user namespace of its own
 * the walking tool has the right to pass over modes, for files of that one user only. The tools die with the
 * service, so that the next one does not remove what an old one still writes.
 */

import {
  chmod,
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
import { EngineError } from '../engine.ts';
import {
  type CommandOptions,
  type CommandResult,
  dyingWithParent,
  runCommand,
} from './commands.ts';
import { NO_SPACE_SAID, requireSuccess } from './failures.ts';
import type { Host } from './host.ts';
import { isThere } from './layout.ts';

const COPY_TIMEOUT_MS = 30 * 60_000;
/** Longer than any storage that is worth its name takes for one call. */
const PAUSED_STALL_MS = 20_000;
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

const CLOSED_SAID = /Permission denied/;

const COPY_PROBLEMS: readonly (readonly [said: RegExp, problem: string])[] = [
  [
    /File name too long/,
    'The disk of the instance holds folders so deep in each other that their path exceeds 4,096 characters. Remove them (rm -r) inside the instance',
  ],
  [
    CLOSED_SAID,
    'The disk of the instance holds files that are closed to their owner. Open them (chmod -R u+rwX) inside the instance',
  ],
];

/**
 * Fills a new, empty folder with the template. Each entry is given to the guest user as soon as it is made:
 * what a crash leaves here is removed by that user.
 */
export async function buildBaseDisk(disk: string, host: Host): Promise<void> {
  for (const [path, mode] of FOLDERS) {
    await mkdir(join(disk, path));
    await chmod(join(disk, path), mode);
    await giveToGuest(join(disk, path), host);
  }
  for (const [path, target] of LINKS) {
    await symlink(target, join(disk, path));
    await giveToGuest(join(disk, path), host);
  }
  for (const [path, source] of HOST_COPIES) {
    const content = await readPublicFile(source);
    if (content !== undefined) await addFile(join(disk, path), content, host);
  }
  await addFile(join(disk, 'etc/nsswitch.conf'), NAME_SERVICES, host);
}

async function addFile(path: string, content: Buffer | string, host: Host): Promise<void> {
  await writeFile(path, content, { flag: 'wx', mode: 0o644 });
  await giveToGuest(path, host);
}

/** Undefined when the host has no such file, or does not show it to everybody. */
async function readPublicFile(path: string): Promise<Buffer | undefined> {
  if (!(await isThere(path))) return undefined;
  const { mode } = await stat(path);
  return (mode & 0o004) === 0 ? undefined : readFile(path);
}

export async function giveToGuest(path: string, { users }: Host): Promise<void> {
  if (users.dropTo !== undefined) await lchown(path, users.guest.uid, users.guest.gid);
}

/** An empty folder for a disk, which belongs to the guest user. */
export async function makeDiskFolder(disk: string, host: Host): Promise<void> {
  await mkdir(disk, { mode: 0o700 });
  await giveToGuest(disk, host);
}

/**
 * Copies everything in one disk to an empty one.
 *
 * @param options.mayShare both may share what they have in common, where the file system can do that.
 * @param options.paused the guest's processes stand still meanwhile, and so must not keep the copy waiting.
 * @throws EngineError `guest_conflict` for what the guest put on its disk; `no_space`; `failed`.
 */
export async function copyDisk(
  from: string,
  to: string,
  host: Host,
  options: { readonly paused: boolean; readonly mayShare: boolean },
): Promise<void> {
  const reflink = options.mayShare ? '--reflink=auto' : '--reflink=never';
  const args = ['-a', reflink, '--', `${from}/.`, '.'];
  const limits = {
    timeoutMs: COPY_TIMEOUT_MS,
    stallMs: options.paused ? PAUSED_STALL_MS : undefined,
  };
  const result = await runAsGuest('/bin/cp', args, to, limits, host);
  if (result.code !== 0) refuseWhatGuestsDo(result, host);
  requireSuccess(result, 'The disk could not be copied.');
}

/** Says in a person's words what cp(1) stumbled over, where it is the guest who can mend it. */
function refuseWhatGuestsDo({ stalled, stderr }: CommandResult, { pastFileModes }: Host): void {
  // Past their modes, it is a folder of the host that is closed.
  if (pastFileModes && CLOSED_SAID.test(stderr)) return;
  const problem = stalled
    ? 'Copying the disk stood still, as it does when a process of the instance holds leases on its files (fcntl F_SETLEASE). End that process'
    : COPY_PROBLEMS.find(([said]) => said.test(stderr))?.[1];
  if (problem === undefined || NO_SPACE_SAID.test(stderr)) return;
  const message = `${problem}, then make a new snapshot.`;
  throw new EngineError('guest_conflict', message, { detail: stderr });
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
  if (await belongsToGuest(disk, host)) {
    const limits = { timeoutMs: REMOVE_TIMEOUT_MS };
    const args = ['-rf', '--one-file-system', '--', 'etc', 'home', 'var', 'tmp'];
    const result = await runAsGuest('/bin/rm', args, disk, limits, host);
    requireSuccess(result, 'The disk could not be removed.');
    await rmdir(disk);
  }
  await rm(path, { recursive: true, force: true });
}

/** False also for a disk that a crash left before it was given away: it is empty, and the guest may not enter it. */
async function belongsToGuest(disk: string, { users }: Host): Promise<boolean> {
  return (await isThere(disk)) && (await stat(disk)).uid === users.guest.uid;
}

function runAsGuest(
  file: string,
  args: readonly string[],
  directory: string,
  limits: Pick<CommandOptions, 'timeoutMs' | 'stallMs'>,
  { users, tools, pastFileModes }: Host,
): Promise<CommandResult> {
  const elevated =
    pastFileModes && tools.unshare !== undefined
      ? [tools.unshare, '--user', '--map-root-user', '--']
      : [];
  const [first = file, ...rest] = [...elevated, ...dyingWithParent(tools), file, ...args];
  return runCommand(first, rest, { identity: users.dropTo, directory, ...limits });
}
