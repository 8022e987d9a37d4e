/**
 * The command line of bwrap(1): which namespaces, which files of the host, what lies over them.
 *
 * The guest sees the host's /usr read-only, a few public files of its /etc, and its own disk. Everything
 * else of the host (its /etc, /home, /root, the data folder, other processes) is simply not there. It has
 * one user id, no capabilities, cannot gain privileges, and cannot make user namespaces of its own, which
 * keeps much of the kernel out of its reach.
 *
 * The sandbox is built in two rounds, one bwrap inside the other. Some of our files lie over the guest's
 * own /etc, and bwrap follows symbolic links to where it mounts, at a moment when the root it builds from is
 * still in reach as /oldroot: a link that the guest left in its /etc would lead there. So that root must hold
 * nothing of value. The outer round mounts only on paths that no guest can write to, and leaves a root with
 * this one instance in it; the inner round, which mounts into the guest's folders, knows nothing else.
 *
 * sshd is process 1 of the sandbox. A guest has sshd's user id and could kill it; but the kernel shields
 * process 1 from signals of its own namespace, and when it does end, everything in there ends with it.
 * No terminal is shared with the service, so `--new-session` has nothing to protect.
 */

import { existsSync, lstatSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { callFilter } from './call-filter.ts';
import { CLEAN_ENVIRONMENT, dyingWithParent } from './commands.ts';

/** Public files of the host's /etc that programs in /usr expect. */
const HOST_FILES = [
  '/etc/alternatives',
  '/etc/ca-certificates',
  '/etc/ca-certificates.conf',
  '/etc/ld.so.cache',
  '/etc/ld.so.conf',
  '/etc/ld.so.conf.d',
  '/etc/services',
  '/etc/protocols',
  '/etc/terminfo',
];

/** In a folder of the engine's own, so that the private keys beside them on a host stay out. */
const TLS_FILES = ['/etc/ssl/certs', '/etc/ssl/openssl.cnf'];

/** What a guest owns: these folders of its disk, and nothing beside them. */
export const DISK_FOLDERS = ['etc', 'home', 'var', 'tmp'];

/** Of the instance's folder `system`; a guest may change the last two until its next start. */
const READ_ONLY_SYSTEM_FILES = ['ssh', 'passwd', 'group', 'hostname', 'machine-id'];
const WRITABLE_SYSTEM_FILES = ['hosts', 'resolv.conf'];

/** Shows the names of keys of whoever started the service (keyrings(7)). */
const HIDDEN_FILE = '/proc/keys';

const RUN_SIZE_BYTES = 16 * 1024 * 1024;

/** Where the outer round keeps the parts of the instance for the inner one. */
const PARTS = '/berth';

/**
 * Reads the filter from words, because no descriptor gets past pasta: $0 is the filter, the rest bwrap's command. And
 * core dumps of the guest get the kernel's default contents again: they hold nothing of the service, whose own are empty.
 */
const INNER_SCRIPT =
  '{ echo 0x33 > /proc/self/coredump_filter; } 2> /dev/null; printf "$0" > /run/filter && exec 3< /run/filter && exec "$@"';

export interface IsolationOptions {
  readonly bwrap: string;
  readonly setpriv: string | undefined;
  readonly bwrapOptions: ReadonlySet<string>;
  readonly hostname: string;
  /** Folder of the instance; absent for a sandbox without a disk. */
  readonly instance?: string;
}

/** The words that run a command in a sandbox. */
export function isolated(options: IsolationOptions, command: readonly string[]): string[] {
  const { bwrap, instance } = options;
  return [
    ...[bwrap, '--unshare-user', '--uid', '1000', '--gid', '1000', ...hostFolders()],
    ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/run'],
    // bwrap builds its new root on a folder of this name.
    ...['--dir', '/tmp'],
    ...[...HOST_FILES, ...TLS_FILES].flatMap((path) => ['--ro-bind-try', path, path]),
    ...(instance === undefined ? [] : instanceParts(instance)),
    ...['--remount-ro', '/', '--chdir', '/', '--'],
    ...[...dyingWithParent(options), '/bin/sh', '-c', INNER_SCRIPT, callFilter()],
    ...[bwrap, '--seccomp', '3', ...innerArguments(options), '--'],
    ...[...dyingWithParent(options), ...command],
  ];
}

/** How many processes below the outermost one the sandboxed command is. */
export function countRounds(words: readonly string[], bwrap: string | undefined): number {
  return words.filter((word) => word === bwrap).length;
}

function innerArguments(options: IsolationOptions): string[] {
  return [
    ...innerNamespaces(options),
    ...[...hostFolders(), '--proc', '/proc', '--dev', '/dev'],
    ...(existsSync(HIDDEN_FILE) ? ['--ro-bind', '/dev/null', HIDDEN_FILE] : []),
    ...runArguments(options.bwrapOptions),
    ...(options.instance === undefined ? [] : guestFolders()),
    ...['--tmpfs', '/dev/shm', '--remount-ro', '/dev', '--remount-ro', '/'],
    ...['--clearenv', '--setenv', 'PATH', CLEAN_ENVIRONMENT.PATH, '--chdir', '/'],
  ];
}

function innerNamespaces({ bwrapOptions, hostname }: IsolationOptions): string[] {
  return [
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts'],
    '--unshare-cgroup-try',
    ...(bwrapOptions.has('--disable-userns') ? ['--disable-userns'] : []),
    ...['--as-pid-1', '--cap-drop', 'ALL', '--uid', '1000', '--gid', '1000'],
    ...['--hostname', hostname],
  ];
}

/** /usr, and /bin, /lib and so on: links into it, or folders of their own on a host that never merged them. */
function hostFolders(): string[] {
  const others = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'].flatMap((name) => {
    const path = `/${name}`;
    if (!existsSync(path)) return [];
    if (lstatSync(path).isSymbolicLink()) return ['--symlink', readlinkSync(path), path];
    return ['--ro-bind', path, path];
  });
  return ['--ro-bind', '/usr', '/usr', ...others];
}

/** Holds sshd's log: in memory and capped, so that neither a guest nor a flood of logins fills a disk. */
function runArguments(bwrapOptions: ReadonlySet<string>): string[] {
  return [
    ...(bwrapOptions.has('--perms') ? ['--perms', '0755'] : []),
    ...(bwrapOptions.has('--size') ? ['--size', String(RUN_SIZE_BYTES)] : []),
    ...['--tmpfs', '/run', '--dir', '/run/lock'],
  ];
}

function instanceParts(instance: string): string[] {
  const bind = (option: string, folder: string, names: readonly string[]): string[] =>
    names.flatMap((name) => [option, join(instance, folder, name), join(PARTS, folder, name)]);
  return [
    ...bind('--bind', 'disk', DISK_FOLDERS),
    ...bind('--ro-bind', 'system', READ_ONLY_SYSTEM_FILES),
    ...bind('--bind', 'system', WRITABLE_SYSTEM_FILES),
  ];
}

/**
 * The engine's files are mounted over those of the disk: a guest cannot lose its login by editing passwd,
 * a restored disk gets a new identity without being written to. `hosts` and `resolv.conf` stay writable.
 */
function guestFolders(): string[] {
  const overlay = (option: string, names: readonly string[]): string[] =>
    names.flatMap((name) => [option, join(PARTS, 'system', name), `/etc/${name}`]);
  const fromHost = (path: string): string[] => ['--ro-bind-try', path, path];
  return [
    ...DISK_FOLDERS.flatMap((name) => ['--bind', join(PARTS, 'disk', name), `/${name}`]),
    ...HOST_FILES.flatMap(fromHost),
    ...['--tmpfs', '/etc/ssl', ...TLS_FILES.flatMap(fromHost), '--remount-ro', '/etc/ssl'],
    ...overlay('--ro-bind', READ_ONLY_SYSTEM_FILES),
    ...overlay('--bind', WRITABLE_SYSTEM_FILES),
  ];
}

/** What is mounted over an entry of the guest's /etc: each needs a file or a folder of that name there. */
export function mountPointsInEtc(): { name: string; isFolder: boolean }[] {
  const system = [...READ_ONLY_SYSTEM_FILES, ...WRITABLE_SYSTEM_FILES];
  return [
    { name: 'ssl', isFolder: true },
    ...system.map((name) => ({ name, isFolder: name === 'ssh' })),
    ...HOST_FILES.filter((path) => existsSync(path)).map((path) => ({
      name: path.slice('/etc/'.length),
      isFolder: statSync(path).isDirectory(),
    })),
  ];
}
