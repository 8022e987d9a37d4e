import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { dataFolder } from '../config-file.ts';
import { CliError } from '../exit-codes.ts';
import { parseTokenLifetimeSeconds } from '../options.ts';
import { printJson, printLine } from '../output.ts';
import { type Admin, loadService } from '../service.ts';
import type { Terminal } from '../terminal.ts';
import { overrides } from './serve.ts';

interface AdminFlags {
  readonly data?: string;
  readonly json?: boolean;
}

interface OrganizationFlags extends AdminFlags {
  readonly email: string;
}

interface TokenFlags extends AdminFlags {
  readonly org: string;
  readonly name: string;
  readonly expiresIn?: number;
}

const examples = `
Examples:
  $ berth admin org create acme --email ops@acme.example
  $ berth admin token create --org acme --name laptop --expires-in 90d

These work directly on the data folder (--data or BERTH_DATA), whether the service runs or not.`;

export function addAdminCommands(program: Command, terminal: Terminal): void {
  const admin = program
    .command('admin')
    .description('organizations and tokens, for who runs the service')
    .addHelpText('after', examples);
  const organization = admin
    .command('org')
    .description('organizations')
    .addHelpText('after', examples);
  withAdminFlags(organization.command('create'))
    .description('make an organization')
    .argument('<name>', 'its name')
    .requiredOption('--email <address>', 'whom to write to about it')
    .addHelpText('after', examples)
    .action((name: string, flags: OrganizationFlags) => createOrganization(terminal, name, flags));
  const token = admin.command('token').description('tokens').addHelpText('after', examples);
  withAdminFlags(token.command('create'))
    .description('make a token and print it, this once')
    .requiredOption('--org <name>', 'the organization that it acts for')
    .requiredOption('--name <name>', 'what to call it')
    .option(
      '--expires-in <time>',
      'end it after 15m, 2h or 30d (default: never)',
      parseTokenLifetimeSeconds,
    )
    .addHelpText('after', examples)
    .action((flags: TokenFlags) => createToken(terminal, flags));
}

function withAdminFlags(command: Command): Command {
  return command
    .option('--data <dir>', 'the data folder of the service (default: BERTH_DATA, else .berth)')
    .option('--json', 'print the answer as JSON');
}

async function createOrganization(
  terminal: Terminal,
  name: string,
  flags: OrganizationFlags,
): Promise<void> {
  const made = await withAdmin(terminal, flags, (admin) =>
    admin.createOrganization({ name, email: flags.email }),
  );
  if (flags.json) printJson(terminal, made);
  else printLine(terminal, `Made the organization ${made.name} (${made.id}).`);
}

async function createToken(terminal: Terminal, flags: TokenFlags): Promise<void> {
  const { expiresIn } = flags;
  const expiry =
    expiresIn === undefined ? {} : { expiresAt: new Date(terminal.now() + expiresIn * 1000) };
  await requireDataFolder(terminal, flags);
  const made = await withAdmin(terminal, flags, (admin) =>
    admin.createToken({ organization: flags.org, name: flags.name, ...expiry }),
  );
  if (flags.json) printJson(terminal, made);
  else printLine(terminal, made.token);
}

/** Opening the data makes the folder; where there is none, a wrong one was named, or none at all. */
async function requireDataFolder(terminal: Terminal, flags: AdminFlags): Promise<void> {
  const settings = settingsOf(terminal, flags);
  const path = dataFolder(settings);
  // A database elsewhere needs no folder of this machine.
  if (settings.BERTH_DATABASE_URL || (await stat(path).catch(() => undefined))?.isDirectory()) {
    return;
  }
  throw new CliError(
    `There is no data folder ${path}. Name the one of the service with --data or BERTH_DATA, or make the first organization in it with: berth admin org create`,
  );
}

const settingsOf = (terminal: Terminal, { data }: AdminFlags) => ({
  ...terminal.env,
  ...overrides({ ...(data && { data }) }),
});

async function withAdmin<T>(
  terminal: Terminal,
  flags: AdminFlags,
  work: (admin: Admin) => Promise<T>,
): Promise<T> {
  const { openAdmin } = await loadService();
  const admin = await openAdmin(settingsOf(terminal, flags));
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}
