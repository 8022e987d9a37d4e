import { type Command, Option } from 'commander';
import type { Client } from '../../api/client.ts';
import type { CreateInstanceRequest, CreateInstanceResponse } from '../../api/instances.ts';
import { keysDirectory } from '../config-file.ts';
import { connect } from '../context.ts';
import { CliError } from '../exit-codes.ts';
import { orDiscard, takeBack } from '../generated-keys.ts';
import { systemReason } from '../input.ts';
import { untilRunning, waitForStatus } from '../instances.ts';
import { type KeyAnswer, type KeyAnswerFlags, printKeyAnswer } from '../key-answers.ts';
import {
  nameSavedKey,
  type ReservedKeyFile,
  reserveKeyFile,
  reserveSavedKey,
} from '../key-files.ts';
import { readKeyOrEntry } from '../key-references.ts';
import { integerBetween, printOption, publicKeyOption, withClientFlags } from '../options.ts';
import { printLine, printNote } from '../output.ts';
import type { Terminal } from '../terminal.ts';

interface CreateFlags extends KeyAnswerFlags {
  readonly cpus: number;
  readonly disk: number;
  readonly ephemeralDisk: number;
  readonly gpuType: string;
  readonly gpus: number;
  readonly mode: CreateInstanceRequest['mode'];
  readonly template: string;
  readonly publicKey?: string;
  readonly output?: string;
  readonly wait: boolean;
}

const examples = `
Examples:
  $ berth instance create
  $ berth instance create --cpus 4 --disk 40 --public-key ~/.ssh/id_ed25519.pub
  $ berth instance create --template before-upgrade      restores the snapshot of that name

Without --public-key a key is made and saved where "berth ssh" finds it.`;

const most = 1_000_000;

export function addInstanceCreateCommand(instance: Command, terminal: Terminal): void {
  withClientFlags(instance.command('create'))
    .description('make an instance and wait until it is RUNNING')
    .option('--cpus <count>', 'CPU cores', integerBetween(1, most), 2)
    .option('--disk <gb>', 'disk size in GB', integerBetween(1, most), 10)
    .option('--ephemeral-disk <gb>', 'ephemeral disk size in GB', integerBetween(0, most), 0)
    .option('--gpu-type <type>', 'type of GPU; cpu is none', 'cpu')
    .option('--gpus <count>', 'number of GPUs', integerBetween(0, most), 1)
    .addOption(modeOption())
    .option('--template <name>', 'a template, or the name of a snapshot to restore', 'base')
    .addOption(publicKeyOption())
    .option('--output <file>', 'save the made private key in this new file')
    .addOption(printOption())
    .option('--no-wait', 'do not wait until it is RUNNING')
    .addHelpText('after', examples)
    .action((flags: CreateFlags) => create(terminal, flags));
}

const modeOption = () =>
  new Option('--mode <mode>', 'how it is placed')
    .choices(['prototyping', 'production'])
    .default('prototyping');

async function create(terminal: Terminal, flags: CreateFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const created = await send(terminal, client, flags);
  const { identifier, uuid } = created.answer;
  // Before the wait: whatever happens then, the user knows what was made.
  report(terminal, flags, created);
  if (!flags.wait) return;
  await waitForStatus(terminal, client, uuid, untilRunning);
  const line = `Instance ${identifier} is RUNNING. Log in with: berth ssh ${identifier}`;
  if (!flags.json && !flags.print) printLine(terminal, line);
}

async function send(
  terminal: Terminal,
  client: Client,
  flags: CreateFlags,
): Promise<KeyAnswer<CreateInstanceResponse>> {
  const request: CreateInstanceRequest = {
    cpu_cores: flags.cpus,
    disk_size_gb: flags.disk,
    ...(flags.ephemeralDisk > 0 && { ephemeral_disk_gb: flags.ephemeralDisk }),
    gpu_type: flags.gpuType,
    num_gpus: flags.gpus,
    mode: flags.mode,
    template: flags.template,
  };
  if (flags.publicKey !== undefined) {
    const publicKey = await readKeyOrEntry(terminal, client, flags.publicKey);
    return { answer: await client.createInstance({ ...request, public_key: publicKey }) };
  }
  if (flags.print) return { answer: await client.createInstance(request) };
  const file = await (flags.output === undefined
    ? reserveSavedKey(keysDirectory(terminal.env), 'new')
    : reserveKeyFile(flags.output));
  const answer = await orDiscard(file, () => client.createInstance(request));
  await save(terminal, client, answer, file, flags.wait);
  if (flags.output !== undefined) return { answer, keyFile: file.path };
  return { answer, keyFile: await nameSavedKey(file.path, answer.uuid) };
}

async function save(
  terminal: Terminal,
  client: Client,
  answer: CreateInstanceResponse,
  file: ReservedKeyFile,
  mayWait: boolean,
): Promise<void> {
  try {
    await file.save(answer.key);
  } catch (error) {
    const problem = `Instance ${answer.identifier} was made, but its key cannot be saved in ${file.path}: ${systemReason(error)}.`;
    printNote(terminal, problem);
    // A key can be removed only from an instance that is up.
    if (mayWait) await waitForStatus(terminal, client, answer.uuid, untilRunning);
    const outcome = await takeBack(client, answer.uuid, answer.key);
    throw new CliError(
      `${outcome}\nAdd another with: berth key add ${answer.identifier} --output FILE`,
    );
  }
}

function report(
  terminal: Terminal,
  flags: CreateFlags,
  created: KeyAnswer<CreateInstanceResponse>,
): void {
  const { answer, keyFile } = created;
  const made = `Made instance ${answer.identifier} (${answer.uuid}).`;
  const where = keyFile === undefined ? [] : [`Its private key is in ${keyFile}`];
  printKeyAnswer(terminal, flags, created, [made, ...where]);
}
