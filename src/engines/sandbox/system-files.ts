/**
 * The files that the engine lays over a guest's /etc, in a folder that no guest can write to: who the
 * instance is (host keys, machine id, host name) and how its sshd behaves.
 */

import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { chown, open, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { EngineError, LOGIN_USER } from '../engine.ts';
import { runCommand } from './commands.ts';
import { requireSuccess } from './failures.ts';
import type { Host } from './host.ts';
import { isThere, makeEngineFolder } from './layout.ts';
import { sshdConfig, unconfinedSshdConfig } from './sshd-config.ts';

const KEY_TYPES = ['ed25519', 'ecdsa'];
const KEYGEN_TIMEOUT_MS = 20_000;
const SHELL = '/bin/bash';

export interface SystemFilesOptions {
  readonly hostname: string;
  readonly allowUnconfinedShells: boolean;
  /** Where its servers listen to be published; what its host name leads to. */
  readonly address: string;
}

/** What an instance keeps for life, and a restored one gets anew: host keys and machine id. */
export async function createIdentity(instance: string, host: Host): Promise<void> {
  const system = join(instance, 'system');
  await makeEngineFolder(system, host.users);
  await makeEngineFolder(join(system, 'ssh'), host.users);
  await place(join(system, 'machine-id'), `${randomBytes(16).toString('hex')}\n`, host);
  if (host.tools.sshKeygen !== undefined) await createHostKeys(instance, host);
}

async function createHostKeys(instance: string, host: Host): Promise<void> {
  const { sshKeygen } = host.tools;
  if (sshKeygen === undefined) {
    throw new EngineError(
      'unavailable',
      'ssh-keygen is missing on this host: apt-get install openssh-client',
    );
  }
  const directory = join(instance, 'system', 'ssh');
  const make = async (type: string): Promise<void> => {
    const file = `ssh_host_${type}_key`;
    if (await isThere(join(directory, file))) return;
    const args = ['-q', '-t', type, '-N', '', '-C', '', '-f', file];
    const result = await runCommand(sshKeygen, args, { directory, timeoutMs: KEYGEN_TIMEOUT_MS });
    requireSuccess(result, 'The host keys could not be made.');
    await giveToGuest(join(directory, file), host);
  };
  await Promise.all(KEY_TYPES.map(make));
}

/** Writes everything that may differ from start to start. */
export async function writeSystemFiles(
  instance: string,
  host: Host,
  options: SystemFilesOptions,
): Promise<void> {
  await createHostKeys(instance, host);
  const system = join(instance, 'system');
  const files = new Map([
    ['passwd', passwd(instance, host)],
    ['group', `root:x:0:\n${LOGIN_USER}:x:${groupId(host)}:\nnogroup:x:65534:\n`],
    ['hostname', `${options.hostname}\n`],
    ['hosts', hosts(options)],
    ['resolv.conf', resolverConfig(host)],
    [
      'ssh/sshd_config',
      host.isolation
        ? sshdConfig(host, options.address)
        : unconfinedSshdConfig(instance, host, options),
    ],
  ]);
  await Promise.all([...files].map(([name, text]) => place(join(system, name), text, host)));
}

function hosts({ address, hostname }: SystemFilesOptions): string {
  return `127.0.0.1 localhost\n${address} ${hostname}\n::1 localhost ip6-localhost\n`;
}

function passwd(instance: string, host: Host): string {
  const [uid, home] = host.isolation
    ? [1000, `/home/${LOGIN_USER}`]
    : [host.users.guest.uid, join(instance, 'disk', 'home', LOGIN_USER)];
  return [
    'root:x:0:0:root:/root:/usr/sbin/nologin',
    `${LOGIN_USER}:x:${uid}:${groupId(host)}:${LOGIN_USER}:${home}:${SHELL}`,
    'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin',
    '',
  ].join('\n');
}

function groupId(host: Host): number {
  return host.isolation ? 1000 : host.users.guest.gid;
}

/** A resolver on the host's loopback cannot be reached from a network of its own. */
function resolverConfig(host: Host): string {
  const real = '/run/systemd/resolve/resolv.conf';
  const text = readIfThere('/etc/resolv.conf');
  return host.ownNetwork && /^nameserver 127\./m.test(text) && existsSync(real)
    ? readIfThere(real)
    : text;
}

function readIfThere(path: string): string {
  return existsSync(path) ? readFileSync(path, 'utf8') : '';
}

/** Replaces a file in one step. It belongs to the guest user, who reads it; the folder does not. */
async function place(path: string, text: string, host: Host): Promise<void> {
  const handle = await open(`${path}.new`, 'w', 0o600);
  try {
    await handle.writeFile(text);
    await handle.chmod(0o644);
  } finally {
    await handle.close();
  }
  await giveToGuest(`${path}.new`, host);
  await rename(`${path}.new`, path);
}

async function giveToGuest(path: string, { users }: Host): Promise<void> {
  if (users.dropTo !== undefined) await chown(path, users.guest.uid, users.guest.gid);
}
