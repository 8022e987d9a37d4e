import type { Command } from 'commander';
import type { Finding } from '../../domain/findings.ts';
import { CliError } from '../exit-codes.ts';
import { alignColumns, printJson, printLine } from '../output.ts';
import { checkEngine, printGuard } from '../service.ts';
import type { Terminal } from '../terminal.ts';

interface CheckFlags {
  readonly engine?: string;
  readonly json?: boolean;
}

const examples = `
Examples:
  $ berth admin engine check
  $ berth admin engine check --engine incus
  $ BERTH_INCUS_POOL=fast berth admin engine check --engine incus --json

Takes the settings of berth serve from the environment. Exits with 1 when something is missing without which there
are no instances; what is merely weak is said, and is no failure.`;

const guardExamples = `
Examples:
  $ BERTH_ENGINE=incus berth admin engine guard | sudo nft -f -

With them an instance cannot speak with the hardware address of another one, and so draw its traffic. They are gone
after a reboot; docs/incus.md says how to keep them.`;

export function addAdminEngineCommands(admin: Command, terminal: Terminal): void {
  const engine = admin
    .command('engine')
    .description('the place where instances live')
    .addHelpText('after', examples);
  engine
    .command('check')
    .description('say what is there, what is missing and how to mend it')
    .option('--engine <name>', 'sandbox or incus (default: BERTH_ENGINE, else sandbox)')
    .option('--json', 'print the answer as JSON')
    .addHelpText('after', examples)
    .action((flags: CheckFlags) => check(terminal, flags));
  engine
    .command('guard')
    .description('print rules for nftables, for every host of the Incus engine')
    .addHelpText('after', guardExamples)
    .action(() => guard(terminal));
}

async function check(terminal: Terminal, { engine, json }: CheckFlags): Promise<void> {
  const env = { ...terminal.env, ...(engine !== undefined && { BERTH_ENGINE: engine }) };
  const { name, findings } = await checkEngine(env);
  const count = findings.filter(({ state }) => state === 'missing').length;
  if (json) printJson(terminal, { engine: name, ok: count === 0, findings });
  else for (const line of alignColumns(findings.map(row))) printLine(terminal, line);
  if (count === 0) return;
  const things = count === 1 ? 'One thing is' : `${count} things are`;
  throw new CliError(`${things} missing that the ${name} engine needs.`);
}

/** One line each: the state stands first, so that an eye or a grep finds what is not well. */
const row = ({ state, topic, found, advice }: Finding): string[] => [
  state,
  topic,
  advice === undefined ? found : `${found}. ${advice}`,
];

async function guard(terminal: Terminal): Promise<void> {
  terminal.stdout.write(await printGuard(terminal.env));
}
