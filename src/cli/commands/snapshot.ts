import { type Command, InvalidArgumentError } from 'commander';
import type { Client } from '../../api/client.ts';
import type { ListSnapshotsQuery, Snapshot } from '../../api/snapshots.ts';
import { parseReference } from '../../domain/ids.ts';
import { snapshotStatuses } from '../../domain/lifecycle.ts';
import { connect } from '../context.ts';
import { CliError, exitCodes } from '../exit-codes.ts';
import { findInstance, findTarget, poll } from '../instances.ts';
import { type ClientFlags, integerBetween, withClientFlags } from '../options.ts';
import { printJson, printLine, printTable, readableTime } from '../output.ts';
import { withProgress } from '../progress.ts';
import type { Terminal } from '../terminal.ts';

/** A proxy on the way may give up after 30 s. */
const longestWaitSeconds = 20;

interface ListFlags extends ClientFlags {
  readonly status?: string;
  readonly name?: string;
  readonly instance?: string;
  readonly fitsGb?: number;
}

interface CreateFlags extends ClientFlags {
  readonly wait: boolean;
}

const examples = `
Examples:
  $ berth snapshot create 0 before-upgrade
  $ berth snapshot list
  $ berth instance create --template before-upgrade      restores it as a new instance
  $ berth snapshot delete before-upgrade`;

const listExamples = `
Examples:
  $ berth snapshot list --json
  $ berth snapshot list --status ready --fits-gb 20`;

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
    .option('--status <status>', 'only those with this status, such as ready', parseStatus)
    .option('--name <name>', 'only the one with this name')
    .option('--instance <instance>', 'only those of this instance; a UUID also when it is gone')
    .option('--fits-gb <gb>', 'only those that fit on such a disk', integerBetween(1, 1_000_000))
    .addHelpText('after', listExamples)
    .action((flags: ListFlags) => list(terminal, flags));
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
  const { id } = await findTarget(client, reference);
  const answer = await client.createSnapshot({ instanceId: id, name });
  if (!flags.wait && !flags.json) return printLine(terminal, answer.message);
  const snapshot = flags.wait
    ? await waitUntilReady(terminal, client, name)
    : await findSnapshot(client, name);
  // The answer to the request has no id; the snapshot as listed has.
  if (flags.json) return printJson(terminal, snapshot);
  printLine(terminal, `Snapshot ${name} is READY (${snapshot.id}).`);
}

/** Asks for one snapshot; from the second time on the service answers when it has changed. */
function following(client: Client): (name: string) => Promise<Snapshot | undefined> {
  let etag: string | undefined;
  return async (name) => {
    const wish = etag === undefined ? {} : { etag, waitSeconds: longestWaitSeconds };
    const answer = await client.askSnapshots({ name }, wish);
    if (!answer) return undefined;
    etag = answer.etag;
    return answer.snapshots[0] ?? refuseUnknown(name);
  };
}

function waitUntilReady(terminal: Terminal, client: Client, name: string): Promise<Snapshot> {
  const nextOf = following(client);
  return withProgress(terminal, `Waiting until snapshot ${name} is READY`, () =>
    poll(terminal, 'berth snapshot list', async () => {
      const snapshot = await nextOf(name);
      if (!snapshot) return undefined;
      if (snapshot.status === 'FAILED') {
        throw new CliError(
          `Snapshot ${name} has FAILED. Delete it with: berth snapshot delete ${name}`,
        );
      }
      return snapshot.status === 'READY' ? snapshot : undefined;
    }),
  );
}

async function list(terminal: Terminal, flags: ListFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const filter = await filterOf(client, flags);
  const snapshots = await client.listSnapshots(filter);
  if (flags.json) return printJson(terminal, snapshots);
  if (snapshots.length === 0 && Object.keys(filter).length > 0)
    return printLine(terminal, 'No snapshot is like that. See them all with: berth snapshot list');
  if (snapshots.length === 0) {
    return printLine(
      terminal,
      'No snapshots. Make one with: berth snapshot create <instance> <name>',
    );
  }
  printTable(terminal, ['NAME', 'STATUS', 'MINIMUM DISK', 'CREATED', 'ID'], snapshots.map(rowOf));
}

function parseStatus(text: string): string {
  const found = snapshotStatuses.find((status) => status === text.toUpperCase());
  if (found) return found;
  throw new InvalidArgumentError(`It must be one of ${snapshotStatuses.join(', ')}.`);
}

async function filterOf(client: Client, flags: ListFlags): Promise<ListSnapshotsQuery> {
  const { status, name, instance, fitsGb } = flags;
  const isName = instance !== undefined && !parseReference(instance);
  const source = isName ? (await findInstance(client, instance)).uuid : instance;
  return {
    ...(status !== undefined && { status }),
    ...(name !== undefined && { name }),
    ...(source !== undefined && { instance: source }),
    ...(fitsGb !== undefined && { fits_gb: String(fitsGb) }),
  };
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
  return found ?? refuseUnknown(reference);
}

function refuseUnknown(reference: string): never {
  throw new CliError(
    `There is no snapshot "${reference}". See them all with: berth snapshot list`,
    exitCodes.notFound,
  );
}
