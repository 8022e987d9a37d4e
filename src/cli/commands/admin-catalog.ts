import type { Command } from 'commander';
import { CliError } from '../exit-codes.ts';
import { printJson, printLine, printNote } from '../output.ts';
import { readCatalogFile } from '../service.ts';
import type { Terminal } from '../terminal.ts';

interface CheckFlags {
  readonly json?: boolean;
}

const examples = `
Examples:
  $ berth admin catalog check catalog.yaml
  $ BERTH_CATALOG=catalog.yaml berth serve`;

export function addAdminCatalogCommands(admin: Command, terminal: Terminal): void {
  const catalog = admin
    .command('catalog')
    .description('what instances can be, and its price')
    .addHelpText('after', examples);
  catalog
    .command('check <file>')
    .description('say all that is wrong with a catalog file, line by line')
    .option('--json', 'print the answer as JSON')
    .addHelpText('after', examples)
    .action((file: string, flags: CheckFlags) => check(terminal, file, flags));
}

async function check(terminal: Terminal, file: string, flags: CheckFlags): Promise<void> {
  // Loaded here alone: it brings a parser that no other command wants.
  const { formatProblem } = await import('../../domain/catalog-file.ts');
  const reading = await readCatalogFile(file);
  const problems = reading.kind === 'problems' ? reading.problems : [];
  if (flags.json) printJson(terminal, { valid: problems.length === 0, problems });
  if (problems.length > 0) {
    if (!flags.json)
      for (const problem of problems) printNote(terminal, formatProblem(file, problem));
    const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`;
    throw new CliError(`The catalog ${file} has ${count}.`);
  }
  if (reading.kind === 'problems' || flags.json) return;
  const { specs, templates } = reading.catalog;
  printLine(
    terminal,
    `The catalog is good. Specs: ${specs.length}. Templates: ${templates.length}.`,
  );
}
