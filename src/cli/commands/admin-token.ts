import type { Command } from 'commander';
import { viewToken } from '../../api/token-view.ts';
import { type AdminFlags, adminExamples, withAdmin, withAdminFlags } from '../admin-session.ts';
import { parseScopeList, parseTokenLifetimeSeconds } from '../options.ts';
import { printJson, printLine } from '../output.ts';
import type { Terminal } from '../terminal.ts';
import { printTokens } from '../tokens.ts';

interface OrgFlags extends AdminFlags {
  readonly org: string;
}

interface NamedFlags extends OrgFlags {
  readonly name: string;
}

interface CreateFlags extends NamedFlags {
  readonly user?: string;
  readonly scopes?: readonly string[];
  readonly expiresIn?: number;
}

const examples = adminExamples(
  'berth admin token create --org acme --name laptop --expires-in 90d',
  'berth admin token create --org acme --name backup --scopes snapshots:read,snapshots:write',
  'berth admin token list --org acme',
  'berth admin token revoke --org acme --name laptop',
);

export function addAdminTokenCommands(admin: Command, terminal: Terminal): void {
  const token = admin.command('token').description('tokens').addHelpText('after', examples);
  const withOrg = (name: string) =>
    withAdminFlags(token.command(name)).requiredOption(
      '--org <name>',
      'the organization that it acts for',
    );
  withOrg('create')
    .description('make a token and print it, this once')
    .requiredOption('--name <name>', 'what to call it')
    .option('--user <email>', 'the member whose it is (default: the first owner)')
    .option(
      '--scopes <list>',
      'what it may do, separated by commas (default: all that the role allows)',
      parseScopeList,
    )
    .option(
      '--expires-in <time>',
      'end it after 15m, 2h or 30d (default: never)',
      parseTokenLifetimeSeconds,
    )
    .addHelpText('after', examples)
    .action((flags: CreateFlags) => create(terminal, flags));
  withOrg('list')
    .description('list the tokens, without their secrets')
    .addHelpText('after', adminExamples('berth admin token list --org acme'))
    .action((flags: OrgFlags) => list(terminal, flags));
  withOrg('revoke')
    .description('end a token; a running service refuses it within a second')
    .requiredOption('--name <name>', 'what it is called')
    .addHelpText('after', adminExamples('berth admin token revoke --org acme --name laptop'))
    .action((flags: NamedFlags) => revoke(terminal, flags));
}

async function create(terminal: Terminal, flags: CreateFlags): Promise<void> {
  const { org, name, user, scopes, expiresIn } = flags;
  const wanted = {
    organization: org,
    name,
    ...(user !== undefined && { email: user }),
    ...(scopes !== undefined && { scopes }),
    ...(expiresIn !== undefined && { expiresAt: new Date(terminal.now() + expiresIn * 1000) }),
  };
  const made = await withAdmin(terminal, flags, (admin) => admin.tokens.create(wanted));
  if (flags.json) printJson(terminal, made);
  else printLine(terminal, made.token);
}

async function list(terminal: Terminal, flags: OrgFlags): Promise<void> {
  const found = await withAdmin(terminal, flags, (admin) => admin.tokens.list(flags.org));
  const tokens = found.map((one) => ({ ...viewToken(one), email: one.email }));
  if (flags.json) return printJson(terminal, tokens);
  printTokens(terminal, tokens, 'No tokens. Make one with: berth admin token create');
}

async function revoke(terminal: Terminal, flags: NamedFlags): Promise<void> {
  await withAdmin(terminal, flags, (admin) => admin.tokens.revoke(flags.org, flags.name));
  if (flags.json) printJson(terminal, {});
  else printLine(terminal, `Revoked the token ${flags.name} of ${flags.org}.`);
}
