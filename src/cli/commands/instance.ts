import type { Command } from 'commander';
import type { Instance } from '../../api/instances.ts';
import { keysDirectory } from '../config-file.ts';
import { connect } from '../context.ts';
import {
  findInstance,
  findTarget,
  lookIfAllowed,
  untilRunning,
  untilStopped,
  waitForStatus,
} from '../instances.ts';
import { removeSavedKeys } from '../key-files.ts';
import { type ClientFlags, withClientFlags } from '../options.ts';
import { printJson, printLine, printNote, printTable, readableTime } from '../output.ts';
import type { Terminal } from '../terminal.ts';
import { addInstanceCreateCommand } from './instance-create.ts';
import { addInstanceModifyCommands } from './instance-modify.ts';

interface WaitFlags extends ClientFlags {
  readonly wait: boolean;
}

const examples = `
Examples:
  $ berth instance create
  $ berth instance list
  $ berth instance show 0
  $ berth instance modify 0 --cpus 4
  $ berth instance ports 0 --add 8000
  $ berth instance stop 0
  $ berth instance delete 0`;

export function addInstanceCommands(program: Command, terminal: Terminal): void {
  const instance = program
    .command('instance')
    .description('make, see, change, start, stop and delete instances')
    .addHelpText('after', examples);
  addInstanceCreateCommand(instance, terminal);
  addInstanceModifyCommands(instance, terminal);
  withClientFlags(instance.command('list'))
    .description('list the instances')
    .addHelpText('after', '\nExample:\n  $ berth instance list --json')
    .action((flags: ClientFlags) => list(terminal, flags));
  withClientFlags(instance.command('show <instance>'))
    .description('show one instance')
    .addHelpText('after', '\nExample:\n  $ berth instance show 0')
    .action((reference: string, flags: ClientFlags) => show(terminal, reference, flags));
  withClientFlags(instance.command('delete <instance>'))
    .description('delete an instance, its disk and the keys saved for it; its snapshots stay')
    .addHelpText('after', '\nExample:\n  $ berth instance delete 0')
    .action((reference: string, flags: ClientFlags) => remove(terminal, reference, flags));
  withClientFlags(instance.command('start <instance>'))
    .description('start a stopped instance')
    .option('--no-wait', 'do not wait until it is RUNNING')
    .addHelpText('after', '\nExample:\n  $ berth instance start 0')
    .action((reference: string, flags: WaitFlags) => start(terminal, reference, flags));
  withClientFlags(instance.command('stop <instance>'))
    .description('stop an instance; its disk stays')
    .option('--no-wait', 'do not wait until it is STOPPED')
    .addHelpText('after', '\nExample:\n  $ berth instance stop 0')
    .action((reference: string, flags: WaitFlags) => stop(terminal, reference, flags));
}

async function list(terminal: Terminal, flags: ClientFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const instances = await client.listInstances();
  if (flags.json) return printJson(terminal, instances);
  const rows = Object.values(instances).sort((one, other) => Number(one.id) - Number(other.id));
  if (rows.length === 0)
    return printLine(terminal, 'No instances. Make one with: berth instance create');
  const headings = ['ID', 'NAME', 'STATUS', 'CPU', 'MEMORY', 'DISK', 'GPU', 'SSH', 'CREATED'];
  printTable(terminal, headings, rows.map(rowOf));
}

const rowOf = (instance: Instance): string[] => [
  instance.id,
  instance.name,
  instance.status,
  instance.cpuCores,
  `${instance.memory} GB`,
  `${instance.storage} GB`,
  `${instance.gpuType} x${instance.numGpus}`,
  addressOf(instance),
  readableTime(instance.createdAt),
];

const addressOf = ({ ip, port }: Instance): string => (ip ? `${ip}:${port ?? ''}` : '');

async function show(terminal: Terminal, reference: string, flags: ClientFlags): Promise<void> {
  const instance = await findInstance(await connect(terminal, flags), reference);
  if (flags.json) return printJson(terminal, instance);
  printTable(
    terminal,
    ['Number', instance.id],
    [
      ['UUID', instance.uuid],
      ['Name', instance.name],
      ['Status', instance.status],
      ...(instance.failure ? [['Failure', instance.failure]] : []),
      ['CPU cores', instance.cpuCores],
      ['Memory', `${instance.memory} GB`],
      ['Disk', `${instance.storage} GB`],
      ...(instance.ephemeralDiskGB > 0
        ? [['Ephemeral disk', `${instance.ephemeralDiskGB} GB`]]
        : []),
      ['GPU', `${instance.gpuType} x${instance.numGpus}`],
      ['Mode', instance.mode],
      ['Template', instance.template],
      ['SSH', addressOf(instance)],
      ['Ports', instance.httpPorts.join(', ')],
      ['Keys', String(instance.sshPublicKeys.length)],
      ['Created', readableTime(instance.createdAt)],
    ],
  );
}

async function remove(terminal: Terminal, reference: string, flags: ClientFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const target = await findTarget(client, reference);
  const uuid = target.uuid ?? (await lookIfAllowed(client, target.id))?.uuid;
  const answer = await client.deleteInstance(uuid ?? target.id);
  // They open nothing any more: what they opened is being deleted.
  const directory = keysDirectory(terminal.env);
  const removed = uuid === undefined ? [] : await removeSavedKeys(directory, uuid);
  if (uuid === undefined) {
    const note = `The token may not look at instances, so keys saved for it stay in ${directory}.`;
    printNote(terminal, note);
  }
  if (flags.json) return printJson(terminal, { ...answer, removed_key_files: removed });
  printLine(terminal, answer.message);
  for (const path of removed) printLine(terminal, `Its saved private key ${path} was deleted.`);
}

async function start(terminal: Terminal, reference: string, flags: WaitFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const { id } = await findTarget(client, reference);
  const answer = await client.startInstance(id);
  const seen = flags.wait ? await waitForStatus(terminal, client, id, untilRunning) : undefined;
  if (flags.json) return printJson(terminal, answer);
  printLine(terminal, seen ? runningLine(seen) : answer.message);
}

async function stop(terminal: Terminal, reference: string, flags: WaitFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const { id } = await findTarget(client, reference);
  const answer = await client.stopInstance(id);
  const seen = flags.wait ? await waitForStatus(terminal, client, id, untilStopped) : undefined;
  if (flags.json) return printJson(terminal, answer);
  printLine(terminal, seen ? `Instance ${seen.id} is STOPPED.` : answer.message);
}

const runningLine = ({ id }: Instance): string =>
  `Instance ${id} is RUNNING. Log in with: berth ssh ${id}`;
