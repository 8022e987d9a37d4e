import { type Command, Option } from 'commander';
import type {
  ChangePortsRequest,
  ModifiedInstance,
  ModifyInstanceRequest,
} from '../../api/instance-modify.ts';
import type { Instance } from '../../api/instances.ts';
import { connect } from '../context.ts';
import { CliError, exitCodes } from '../exit-codes.ts';
import { findInstance, findTarget, lookIfAllowed } from '../instances.ts';
import { type ClientFlags, integerBetween, withClientFlags } from '../options.ts';
import { printJson, printLine } from '../output.ts';
import type { Terminal } from '../terminal.ts';

interface ModifyFlags extends ClientFlags {
  readonly cpus?: number;
  readonly disk?: number;
  readonly ephemeralDisk?: number;
  readonly gpuType?: string;
  readonly gpus?: number;
  readonly mode?: NonNullable<ModifyInstanceRequest['mode']>;
}

interface PortsFlags extends ClientFlags {
  readonly add?: readonly number[];
  readonly remove?: readonly number[];
}

const modifyExamples = `
Examples:
  $ berth instance modify 0 --cpus 4
  $ berth instance modify 0 --disk 40      a disk only grows`;

const portsExamples = `
Examples:
  $ berth instance ports 0
  $ berth instance ports 0 --add 8000 --remove 9000
  $ berth instance ports 0 --add 8000 8001

Inside, let the server listen on the address in $BERTH_ADDRESS:
  $ python3 -m http.server 8000 --bind $BERTH_ADDRESS`;

const most = 1_000_000;
const parsePort = integerBetween(1, 65_535);
const parsePorts = (text: string, before: readonly number[] = []): number[] => [
  ...before,
  parsePort(text),
];

export function addInstanceModifyCommands(instance: Command, terminal: Terminal): void {
  withClientFlags(instance.command('modify <instance>'))
    .description('change the size of an instance; what is not named stays')
    .option('--cpus <count>', 'CPU cores', integerBetween(1, most))
    .option('--disk <gb>', 'disk size in GB; it only grows', integerBetween(1, most))
    .option('--ephemeral-disk <gb>', 'ephemeral disk size in GB', integerBetween(0, most))
    .option('--gpu-type <type>', 'type of GPU; cpu is none')
    .option('--gpus <count>', 'number of GPUs', integerBetween(0, most))
    .addOption(
      new Option('--mode <mode>', 'how it is placed').choices(['prototyping', 'production']),
    )
    .addHelpText('after', modifyExamples)
    .action((reference: string, flags: ModifyFlags) => modify(terminal, reference, flags));
  withClientFlags(instance.command('ports <instance>'))
    .description('show the published ports of an instance, publish some, or take some back')
    .option('--add <ports...>', 'publish these', parsePorts)
    .option('--remove <ports...>', 'publish these no longer', parsePorts)
    .addHelpText('after', portsExamples)
    .action((reference: string, flags: PortsFlags) => ports(terminal, reference, flags));
}

async function modify(terminal: Terminal, reference: string, flags: ModifyFlags): Promise<void> {
  const request = toRequest(flags);
  if (Object.keys(request).length === 0)
    throw new CliError('Name a size to change, such as --cpus 4.', exitCodes.usage);
  const client = await connect(terminal, flags);
  const { id } = await findTarget(client, reference);
  const answer = await client.modifyInstance(id, request);
  if (flags.json) return printJson(terminal, answer);
  const instance = await lookIfAllowed(client, id);
  const done = `Instance ${answer.identifier} is as you asked.`;
  printLine(terminal, instance ? sizeLine(instance) : done);
}

function sizeLine(instance: Instance): string {
  const { id, cpuCores, memory, storage, ephemeralDiskGB, gpuType, numGpus, mode } = instance;
  const ephemeral = ephemeralDiskGB > 0 ? ` an ephemeral disk of ${ephemeralDiskGB} GB,` : '';
  return `Instance ${id} has ${cpuCores} CPU cores, ${memory} GB of memory, a disk of ${storage} GB,${ephemeral} ${gpuType} x${numGpus}, mode ${mode}.`;
}

const toRequest = (flags: ModifyFlags): ModifyInstanceRequest => ({
  ...(flags.cpus !== undefined && { cpu_cores: flags.cpus }),
  ...(flags.disk !== undefined && { disk_size_gb: flags.disk }),
  ...(flags.ephemeralDisk !== undefined && { ephemeral_disk_gb: flags.ephemeralDisk }),
  ...(flags.gpuType !== undefined && { gpu_type: flags.gpuType }),
  ...(flags.gpus !== undefined && { num_gpus: flags.gpus }),
  ...(flags.mode !== undefined && { mode: flags.mode }),
});

async function ports(terminal: Terminal, reference: string, flags: PortsFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const request: ChangePortsRequest = {
    ...(flags.add && { add_ports: [...flags.add] }),
    ...(flags.remove && { remove_ports: [...flags.remove] }),
  };
  if (Object.keys(request).length === 0) {
    const { id, httpPorts } = await findInstance(client, reference);
    if (flags.json) return printJson(terminal, { http_ports: httpPorts });
    return printLine(terminal, portsLine(id, httpPorts));
  }
  const { id } = await findTarget(client, reference);
  const answer: ModifiedInstance = await client.changePorts(id, request);
  if (flags.json) return printJson(terminal, answer);
  printLine(terminal, portsLine(answer.identifier, answer.http_ports));
}

const portsLine = (id: string, published: readonly number[]): string =>
  published.length === 0
    ? `Instance ${id} has no published ports.`
    : `Published ports of instance ${id}: ${published.join(', ')}`;
