import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import type { Client } from '../../api/client.ts';
import type { Instance } from '../../api/instances.ts';
import { keysDirectory } from '../config-file.ts';
import { connect } from '../context.ts';
import { CliError } from '../exit-codes.ts';
import { addGeneratedKey, savedKeyLines } from '../generated-keys.ts';
import { findInstance } from '../instances.ts';
import { findSavedKeys, reserveSavedKey } from '../key-files.ts';
import { printNote } from '../output.ts';
import type { Terminal } from '../terminal.ts';

interface SshFlags {
  readonly url?: string;
}

const examples = `
Examples:
  $ berth ssh 0
  $ berth ssh 0 uptime
  $ berth ssh 0 -- ls -l /var
  $ berth ssh 0 -- -L 8888:127.0.0.1:8888

What follows -- goes to ssh unchanged: options of ssh, or a command. The exit status is that of ssh.
The key is one that was saved for the instance; when none logs in, one is made and added.`;

export function addSshCommand(program: Command, terminal: Terminal): void {
  program
    .command('ssh <instance> [args...]')
    .description('log in to an instance')
    .option('--url <url>', 'where the service is (default: BERTH_URL, else as logged in)')
    .addHelpText('after', examples)
    .action((reference: string, args: string[], flags: SshFlags) =>
      logIn(terminal, reference, args, flags),
    );
}

async function logIn(
  terminal: Terminal,
  reference: string,
  args: readonly string[],
  flags: SshFlags,
): Promise<void> {
  const client = await connect(terminal, flags);
  const instance = await findInstance(client, reference);
  const { id, ip, port, status } = instance;
  if (status === 'STOPPED') {
    throw new CliError(`Instance ${id} is STOPPED. Start it with: berth instance start ${id}`);
  }
  if (ip === undefined || port === undefined) {
    throw new CliError(`Instance ${id} is ${status}. Wait until it is RUNNING and try again.`);
  }
  const keyPath = await findOrAddKey(terminal, client, instance);
  const knownHostsPath = join(keysDirectory(terminal.env), 'known_hosts');
  const target = { ip, port, keyPath, knownHostsPath, instanceUuid: instance.uuid };
  process.exitCode = await runSsh(sshArguments(target, args));
}

/** A saved key that the instance still lists, or else a new one. */
async function findOrAddKey(
  terminal: Terminal,
  client: Client,
  instance: Instance,
): Promise<string> {
  const directory = keysDirectory(terminal.env);
  const saved = await findSavedKeys(directory, instance.uuid, terminal.now() / 1000);
  if (saved.length > 0) {
    const accepted = new Set((await client.listKeys(instance.uuid)).map((key) => key.fingerprint));
    const usable = saved.find((key) => accepted.has(key.fingerprint));
    if (usable) return usable.path;
  }
  const file = await reserveSavedKey(directory, instance.uuid);
  const answer = await addGeneratedKey(client, instance.uuid, {}, file);
  printNote(terminal, savedKeyLines(answer.key, file.path, instance.id).join(' '));
  return file.path;
}

export interface SshTarget {
  readonly ip: string;
  readonly port: number;
  readonly keyPath: string;
  readonly knownHostsPath: string;
  readonly instanceUuid: string;
}

/** Arguments of ssh(1); `args` follow the host, where ssh takes both its options and a command. */
export function sshArguments(target: SshTarget, args: readonly string[]): string[] {
  return [
    ...['-p', String(target.port)],
    // Not -i: that looks for the file before it reads tokens, so a path with a percent sign fails.
    ...['-o', `IdentityFile=${literal(target.keyPath)}`],
    // An agent full of other keys would use up the attempts that sshd allows.
    ...['-o', 'IdentitiesOnly=yes'],
    ...['-o', `UserKnownHostsFile=${literal(target.knownHostsPath)}`],
    ...['-o', 'StrictHostKeyChecking=accept-new'],
    // By UUID: the port of a deleted instance is given to another one, which has other host keys.
    ...['-o', `HostKeyAlias=${target.instanceUuid}`],
    `ubuntu@${target.ip}`,
    ...args,
  ];
}

/** ssh_config(5): quotes keep spaces, and a percent sign stands for itself when doubled (TOKENS). */
const literal = (path: string): string => `"${path.replaceAll('%', '%%')}"`;

/** Runs ssh in place of this process, as far as anybody can tell. Returns its exit status as a shell gives it. */
async function runSsh(args: readonly string[]): Promise<number> {
  const child = spawn('ssh', args, { stdio: 'inherit' });
  // The terminal sends these to ssh as well, and ssh decides what they mean.
  const ignore = () => undefined;
  const forward = (signal: NodeJS.Signals) => child.kill(signal);
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) process.on(signal, ignore);
  for (const signal of ['SIGTERM', 'SIGHUP'] as const) process.on(signal, forward);
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
    return code ?? 128 + (signal ? constants.signals[signal] : 0);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
      throw new CliError(
        'The program ssh is not installed. On Debian and Ubuntu: apt install openssh-client',
      );
    }
    throw error;
  }
}
