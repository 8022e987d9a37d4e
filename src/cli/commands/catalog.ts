import type { Command } from 'commander';
import type { PlacingStatus, Pricing, Spec, Template } from '../../api/catalog.ts';
import { connectOpenly } from '../context.ts';
import { type ClientFlags, withClientFlags } from '../options.ts';
import { printJson, printTable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

/** What can be asked for; these want no login. */
export function addCatalogCommands(program: Command, terminal: Terminal): void {
  withClientFlags(program.command('specs'))
    .description('list what instances can be, its price, and what is to be had now')
    .addHelpText('after', '\nExample:\n  $ berth specs')
    .action((flags: ClientFlags) => listSpecs(terminal, flags));
  withClientFlags(program.command('templates'))
    .description('list what the disks of instances can start from')
    .addHelpText('after', '\nExample:\n  $ berth templates')
    .action((flags: ClientFlags) => listTemplates(terminal, flags));
}

async function listSpecs(terminal: Terminal, flags: ClientFlags): Promise<void> {
  const client = await connectOpenly(terminal, flags);
  const answer = await client.listSpecs();
  if (flags.json) return printJson(terminal, answer);
  const [status, pricing] = await Promise.all([client.showStatus(), client.showPricing()]);
  const rows = Object.entries(answer.specs).map(([key, spec]) =>
    specRow(key, spec, status, pricing),
  );
  const headings = ['SPEC', 'GPU', 'VRAM', 'VCPUS', 'MEMORY', 'DISK', 'PRICE PER HOUR', 'NOW'];
  printTable(terminal, headings, rows);
}

const specRow = (
  key: string,
  spec: Spec,
  { specs }: PlacingStatus,
  { pricing }: Pricing,
): string[] => [
  key,
  spec.displayName,
  spec.vramGB === 0 ? '' : `${spec.vramGB} GB`,
  numbers(spec.vcpuOptions),
  `${spec.ramPerVCPUGiB} GiB per vCPU`,
  `${spec.storageGB.min} to ${spec.storageGB.max} GB`,
  String(pricing[key] ?? ''),
  specs[key] ?? '',
];

/** Many are a range as a rule. */
function numbers(options: readonly number[]): string {
  const [first = 0] = options;
  const last = options.at(-1) ?? first;
  const gapless = last - first === options.length - 1;
  return gapless && options.length > 3 ? `${first} to ${last}` : options.join(', ');
}

async function listTemplates(terminal: Terminal, flags: ClientFlags): Promise<void> {
  const templates = await (await connectOpenly(terminal, flags)).listTemplates();
  if (flags.json) return printJson(terminal, templates);
  printTable(
    terminal,
    ['TEMPLATE', 'NAME', 'DEFAULT', 'ABOUT'],
    Object.entries(templates).map(row),
  );
}

const row = ([key, template]: [string, Template]): string[] => [
  key,
  template.displayName,
  template.default ? 'yes' : '',
  template.extendedDescription,
];
