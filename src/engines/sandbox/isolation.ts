/**
 * The command line of bwrap(1): which namespaces, which files of the host, what lies over them.
 *
 * The guest sees the host's /usr read-only, a few public files of its /etc, and its own disk. Everything
 * else of the host (its /etc, /home, /root, the data folder, other processes) is simply not there. It has
 * one user id, no capabilities, cannot gain privileges, and cannot make user namespaces of its own, which
 * keeps much of the kernel out of its reach.
 *
 * sshd is process 1 of the sandbox. A guest has sshd's user id and could kill it; but the kernel shields
 * process 1 from signals of its own namespace, and when it does end, everything in there ends with it.
 * No terminal is shared with the service, so `--new-session` has nothing to protect.
 */

import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { CLEAN_ENVIRONMENT } from './commands.ts';

/** Public files of the host's /etc that programs in /usr expect. */
const HOST_FILES = [
  '/etc/alternatives',
  '/etc/ssl/certs',
  '/etc/ssl/openssl.cnf',
  '/etc/ca-certificates',
  '/etc/ca-certificates.conf',
  '/etc/ld.so.cache',
  '/etc/ld.so.conf',
  '/etc/ld.so.conf.d',
  '/etc/services',
  '/etc/protocols',
  '/etc/terminfo',
];

const RUN_SIZE_BYTES = 16 * 1024 * 1024;

export interface IsolationOptions {
  readonly bwrapOptions: ReadonlySet<string>;
  readonly hostname: string;
  /** Folder of the instance; absent for a sandbox without a disk. */
  readonly instance?: string;
}

/** Everything up to the `--` before the command. */
export function isolationArguments(options: IsolationOptions): string[] {
  const { instance } = options;
  return [
    ...namespaceArguments(options),
    ...['--ro-bind', '/usr', '/usr', ...rootLinks()],
    ...['--proc', '/proc', '--dev', '/dev', ...runArguments(options.bwrapOptions)],
    ...(instance === undefined ? [] : diskArguments(instance)),
    ...['--tmpfs', '/dev/shm', '--remount-ro', '/dev', '--remount-ro', '/'],
    ...['--clearenv', '--setenv', 'PATH', CLEAN_ENVIRONMENT.PATH, '--chdir', '/'],
  ];
}

function namespaceArguments({ bwrapOptions, hostname }: IsolationOptions): string[] {
  return [
    ...[
      '--unshare-user',
      '--unshare-pid',
      '--unshare-ipc',
      '--unshare-uts',
      '--unshare-cgroup-try',
    ],
    ...(bwrapOptions.has('--disable-userns') ? ['--disable-userns'] : []),
    ...[
      '--as-pid-1',
      '--cap-drop',
      'ALL',
      '--uid',
      '1000',
      '--gid',
      '1000',
      '--hostname',
      hostname,
    ],
  ];
}

/** /bin, /lib and so on: links into /usr, or folders of their own on a host that never merged them. */
function rootLinks(): string[] {
  return ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'].flatMap((name) => {
    const path = `/${name}`;
    if (!existsSync(path)) return [];
    if (lstatSync(path).isSymbolicLink()) return ['--symlink', readlinkSync(path), path];
    return ['--ro-bind', path, path];
  });
}

/** Holds sshd's log: in memory and capped, so that neither a guest nor a flood of logins fills a disk. */
function runArguments(bwrapOptions: ReadonlySet<string>): string[] {
  return [
    ...(bwrapOptions.has('--perms') ? ['--perms', '0755'] : []),
    ...(bwrapOptions.has('--size') ? ['--size', String(RUN_SIZE_BYTES)] : []),
    ...['--tmpfs', '/run', '--dir', '/run/lock'],
  ];
}

/**
 * The engine's files are mounted over those of the disk: a guest cannot lose its login by editing passwd,
 * a restored disk gets a new identity without being written to. `hosts` and `resolv.conf` stay writable.
 */
function diskArguments(instance: string): string[] {
  const system = join(instance, 'system');
  const overlay = (option: string, names: string[]): string[] =>
    names.flatMap((name) => [option, join(system, name), `/etc/${name}`]);
  return [
    ...['etc', 'home', 'var', 'tmp'].flatMap((name) => [
      '--bind',
      join(instance, 'disk', name),
      `/${name}`,
    ]),
    ...HOST_FILES.flatMap((path) => ['--ro-bind-try', path, path]),
    ...overlay('--ro-bind', ['ssh', 'passwd', 'group', 'hostname', 'machine-id']),
    ...overlay('--bind', ['hosts', 'resolv.conf']),
  ];
}
