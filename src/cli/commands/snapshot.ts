import type { Command } from 'commander';
import type { Client } from '../../api/client.ts';
import type { Snapshot } from '../../api/snapshots.ts';
import { connect } from '../context.ts';
import { CliError, exitCodes } from '../exit-codes.ts';
import { findInstance, poll } from '../instances.ts';
import { type ClientFlags, withClientFlags } from '../options.ts';
import { printJson, printLine, printTable, readableTime } from '../output.ts';
import { withProgress } from '../progress.ts';
import type { Terminal } from '../terminal.ts';

interface CreateFlags extends ClientFlags {
  readonly wait: boolean;
}

const examples = `
Examples:
  $ berth snapshot create 0 before-upgrade
  $ berth snapshot list
  $ berth instance create --template before-upgrade      restores it as a new instance
  $ berth snapshot delete before-upgrade`;

export function addSnapshotCommands(program: Command, terminal: Terminal): void {
  const snapshot = program
    .command('snapshot')
    .description('copies of the disks of instances')
    .addHelpText('after', examples);
  withClientFlags(snapshot.command('create <instance> <name>'))
    .description('copy the disk of a running instance and wait until that is READY')
    .option('--no-wait', 'do not wait until it is READY')
    .addHelpText('after', '\nExample:\n  $ berth snapshot create 0 before-upgrade')
    .action((reference: string, name: string, flags: CreateFlags) =>
      create(terminal, reference, name, flags),
    );
  withClientFlags(snapshot.command('list'))
    .description('list the snapshots')
    .addHelpText('after', '\nExample:\n  $ berth snapshot list --json')
    .action((flags: ClientFlags) => list(terminal, flags));
  withClientFlags(snapshot.command('delete'))
    .description('delete a snapshot')
    .argument('<snapshot>', 'its name or UUID')
    .addHelpText('after', '\nExample:\n  $ berth snapshot delete before-upgrade')
    .action((reference: string, flags: ClientFlags) => remove(terminal, reference, flags));
}

async function create(
  terminal: Terminal,
  reference: string,
  name: string,
  flags: CreateFlags,
): Promise<void> {
  const client = await connect(terminal, flags);
  const { uuid } = await findInstance(client, reference);
  const answer = await client.createSnapshot({ instanceId: uuid, name });
  const snapshot = flags.wait
    ? await waitUntilReady(terminal, client, name)
    : await findSnapshot(client, name);
  // The answer to the request has no id; the snapshot as listed has.
  if (flags.json) return printJson(terminal, snapshot);
  printLine(terminal, flags.wait ? `Snapshot ${name} is READY (${snapshot.id}).` : answer.message);
}

function waitUntilReady(terminal: Terminal, client: Client, name: string): Promise<Snapshot> {
  return withProgress(terminal, `Waiting until snapshot ${name} is READY`, () =>
    poll(terminal, 'berth snapshot list', async () => {
      const snapshot = await findSnapshot(client, name);
      if (snapshot.status === 'FAILED') {
        throw new CliError(
          `Snapshot ${name} has FAILED. Delete it with: berth snapshot delete ${name}`,
        );
      }
      return snapshot.status === 'READY' ? snapshot : undefined;
    }),
  );
}

async function list(terminal: Terminal, flags: ClientFlags): Promise<void> {
  const snapshots = await (await connect(terminal, flags)).listSnapshots();
  if (flags.json) return printJson(terminal, snapshots);
  if (snapshots.length === 0) {
    return printLine(
      terminal,
      'No snapshots. Make one with: berth snapshot create <instance> <name>',
    );
  }
  printTable(terminal, ['NAME', 'STATUS', 'MINIMUM DISK', 'CREATED', 'ID'], snapshots.map(rowOf));
}

const rowOf = (snapshot: Snapshot): string[] => [
  snapshot.name,
  snapshot.status,
  `${snapshot.minimumDiskSizeGb} GB`,
  readableTime(snapshot.createdAt),
  snapshot.id,
];

async function remove(terminal: Terminal, reference: string, flags: ClientFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const { id, name } = await findSnapshot(client, reference);
  await client.deleteSnapshot(id);
  // The service answers with nothing at all, which is not JSON.
  if (flags.json) printJson(terminal, {});
  else printLine(terminal, `Deleted the snapshot ${name}.`);
}

/** By UUID, else by name: a name may look like a UUID, but then the UUID goes first. */
async function findSnapshot(client: Client, reference: string): Promise<Snapshot> {
  const snapshots = await client.listSnapshots();
  const found =
    snapshots.find((snapshot) => snapshot.id === reference.toLowerCase()) ??
    snapshots.find((snapshot) => snapshot.name === reference);
  if (found) return found;
  throw new CliError(
    `There is no snapshot "${reference}". See them all with: berth snapshot list`,
    exitCodes.notFound,
  );
}
