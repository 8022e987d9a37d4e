import type { Command } from 'commander';
import { type AdminFlags, adminExamples, withAdmin, withAdminFlags } from '../admin-session.ts';
import { CliError } from '../exit-codes.ts';
import { integerBetween } from '../options.ts';
import { printJson, printLine, printTable, readableTime } from '../output.ts';
import type { Admin } from '../service.ts';
import type { Terminal } from '../terminal.ts';

interface ListFlags extends AdminFlags {
  readonly org: string;
  readonly limit: number;
}

interface VerifyFlags extends AdminFlags {
  readonly org?: string;
}

type Line = Awaited<ReturnType<Admin['audit']['list']>>[number];
type Verified = Awaited<ReturnType<Admin['audit']['verify']>>[number];

const examples = adminExamples(
  'berth admin audit list --org acme',
  'berth admin audit verify',
  'berth admin audit verify --org acme --json',
);

export function addAdminAuditCommands(admin: Command, terminal: Terminal): void {
  const audit = admin
    .command('audit')
    .description('what was changed, by which token, and whether the log of it is sound')
    .addHelpText('after', examples);
  withAdminFlags(audit.command('list'))
    .description('list the newest lines of an organization')
    .requiredOption('--org <name>', 'the organization')
    .option('--limit <number>', 'how many lines', integerBetween(1, 1_000_000), 100)
    .addHelpText('after', examples)
    .action((flags: ListFlags) => list(terminal, flags));
  withAdminFlags(audit.command('verify'))
    .description('check that no line was changed, removed, put in or moved')
    .option('--org <name>', 'one organization (default: all)')
    .addHelpText('after', examples)
    .action((flags: VerifyFlags) => verify(terminal, flags));
}

async function list(terminal: Terminal, flags: ListFlags): Promise<void> {
  const lines = await withAdmin(terminal, flags, (admin) =>
    admin.audit.list(flags.org, flags.limit),
  );
  if (flags.json) return printJson(terminal, lines.map(viewOf));
  if (lines.length === 0) return printLine(terminal, 'No lines.');
  printTable(
    terminal,
    ['ID', 'AT', 'TOKEN', 'ACTION', 'SUBJECT', 'OUTCOME', 'REQUEST'],
    lines.map((line) => [
      String(line.number),
      readableTime(line.at / 1000),
      line.token ?? '',
      line.action,
      line.subject,
      line.outcome,
      line.requestId ?? '',
    ]),
  );
}

/** As `GET /v1/audit` has it. */
const viewOf = (line: Line) => ({
  id: line.number,
  at: new Date(line.at).toISOString(),
  token: line.token,
  request_id: line.requestId,
  action: line.action,
  subject: line.subject,
  outcome: line.outcome,
  hash: line.hash,
});

async function verify(terminal: Terminal, flags: VerifyFlags): Promise<void> {
  const logs = await withAdmin(terminal, flags, (admin) => admin.audit.verify(flags.org));
  if (flags.json) printJson(terminal, logs.map(verdictOf));
  else for (const log of logs) printLine(terminal, sentenceOf(log));
  const broken = logs.filter((log) => log.problem !== undefined).length;
  if (broken > 0) {
    throw new CliError(`${broken} of ${logs.length} audit logs are not as they were written.`);
  }
}

const verdictOf = ({ organization, lines, head, problem }: Verified) => ({
  organization,
  sound: problem === undefined,
  lines,
  head,
  problem,
});

const sentenceOf = ({ organization, lines, head, problem }: Verified): string =>
  problem === undefined
    ? `${organization}: ${lines} lines are sound; head ${head || 'none'}`
    : `${organization}: ${problem} ${lines} lines before it are sound.`;
