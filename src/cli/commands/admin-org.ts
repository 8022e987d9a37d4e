import { type Command, InvalidArgumentError } from 'commander';
import {
  type AdminFlags,
  adminExamples,
  withAdmin,
  withAdminFlags,
  withNewAdmin,
} from '../admin-session.ts';
import { integerBetween } from '../options.ts';
import { printJson, printLine, printTable, readableTime } from '../output.ts';
import type { Admin } from '../service.ts';
import type { Terminal } from '../terminal.ts';

interface CreateFlags extends AdminFlags {
  readonly email: string;
}

interface QuotaFlags extends AdminFlags {
  readonly instances?: Limit;
  readonly cpuCores?: Limit;
  readonly diskGb?: Limit;
  readonly snapshots?: Limit;
}

type Limit = number | 'none';
type Quotas = Awaited<ReturnType<Admin['organizations']['setQuotas']>>;
type Organization = Awaited<ReturnType<Admin['organizations']['show']>>;

const examples = adminExamples(
  'berth admin org create acme --email ops@acme.example',
  'berth admin org list',
  'berth admin org quota acme --instances 20 --disk-gb 500',
);

export function addAdminOrgCommands(admin: Command, terminal: Terminal): void {
  const organization = admin
    .command('org')
    .description('organizations and their quotas')
    .addHelpText('after', examples);
  withAdminFlags(organization.command('create'))
    .description('make an organization and its first owner')
    .argument('<name>', 'its name')
    .requiredOption('--email <address>', 'the first owner: whom to write to about it')
    .addHelpText('after', examples)
    .action((name: string, flags: CreateFlags) => create(terminal, name, flags));
  withAdminFlags(organization.command('list'))
    .description('list the organizations')
    .addHelpText('after', adminExamples('berth admin org list --json'))
    .action((flags: AdminFlags) => list(terminal, flags));
  withAdminFlags(organization.command('show'))
    .description('show what an organization has')
    .argument('<name>', 'its name')
    .addHelpText('after', adminExamples('berth admin org show acme'))
    .action((name: string, flags: AdminFlags) => show(terminal, name, flags));
  withAdminFlags(organization.command('delete'))
    .description('delete an organization that has no instances and no snapshots')
    .argument('<name>', 'its name')
    .addHelpText('after', adminExamples('berth admin org delete acme'))
    .action((name: string, flags: AdminFlags) => remove(terminal, name, flags));
  addQuotaCommand(organization, terminal);
}

function addQuotaCommand(organization: Command, terminal: Terminal): void {
  withAdminFlags(organization.command('quota'))
    .description('show or set how much an organization may have')
    .argument('<name>', 'its name')
    .option('--instances <number>', 'instances, stopped ones included, or none', parseLimit)
    .option('--cpu-cores <number>', 'CPU cores of all its instances together, or none', parseLimit)
    .option('--disk-gb <number>', 'disk of all its instances together, or none', parseLimit)
    .option('--snapshots <number>', 'snapshots, or none', parseLimit)
    .addHelpText(
      'after',
      adminExamples(
        'berth admin org quota acme',
        'berth admin org quota acme --instances 20 --disk-gb 500',
        'berth admin org quota acme --snapshots none',
      ),
    )
    .action((name: string, flags: QuotaFlags) => quota(terminal, name, flags));
}

/** `none` takes a limit away. */
function parseLimit(text: string): Limit {
  if (text === 'none') return 'none';
  try {
    return integerBetween(0, 1_000_000_000)(text);
  } catch {
    throw new InvalidArgumentError('It must be a whole number from 0 to 1000000000, or none.');
  }
}

async function create(terminal: Terminal, name: string, flags: CreateFlags): Promise<void> {
  const made = await withNewAdmin(terminal, flags, (admin) =>
    admin.organizations.create({ name, email: flags.email }),
  );
  if (flags.json) printJson(terminal, made);
  else printLine(terminal, `Made the organization ${made.name} (${made.id}).`);
}

async function list(terminal: Terminal, flags: AdminFlags): Promise<void> {
  const found = await withAdmin(terminal, flags, (admin) => admin.organizations.list());
  if (flags.json) return printJson(terminal, found.map(viewOf));
  if (found.length === 0)
    return printLine(terminal, 'No organizations. Make one with: berth admin org create');
  printTable(
    terminal,
    ['NAME', 'MEMBERS', 'TOKENS', 'INSTANCES', 'SNAPSHOTS', 'CREATED', 'ID'],
    found.map((one) => [
      one.name,
      String(one.members),
      String(one.tokens),
      String(one.use.instances),
      String(one.use.snapshots),
      readableTime(one.createdAt / 1000),
      one.id,
    ]),
  );
}

async function show(terminal: Terminal, name: string, flags: AdminFlags): Promise<void> {
  const found = await withAdmin(terminal, flags, (admin) => admin.organizations.show(name));
  if (flags.json) return printJson(terminal, viewOf(found));
  printLine(terminal, `${found.name} (${found.id}), made ${readableTime(found.createdAt / 1000)}`);
  printLine(terminal, `Members: ${found.members}. Tokens: ${found.tokens}.`);
  printQuotas(terminal, found);
}

async function remove(terminal: Terminal, name: string, flags: AdminFlags): Promise<void> {
  await withAdmin(terminal, flags, (admin) => admin.organizations.delete(name));
  if (flags.json) printJson(terminal, {});
  else printLine(terminal, `Deleted the organization ${name}, its members and its tokens.`);
}

async function quota(terminal: Terminal, name: string, flags: QuotaFlags): Promise<void> {
  const limits = limitsOf(flags);
  const isChange = Object.keys(limits).length > 0;
  const quotas = await withAdmin(terminal, flags, ({ organizations }) =>
    isChange ? organizations.setQuotas(name, limits) : organizations.show(name),
  );
  if (flags.json) printJson(terminal, { limits: quotas.limits, use: quotas.use });
  else printQuotas(terminal, quotas);
}

function limitsOf(flags: QuotaFlags): Partial<Record<keyof Quotas['limits'], number | null>> {
  const named = {
    instances: flags.instances,
    cpu_cores: flags.cpuCores,
    disk_gb: flags.diskGb,
    snapshots: flags.snapshots,
  };
  const given = Object.entries(named).filter(([, limit]) => limit !== undefined);
  return Object.fromEntries(
    given.map(([quotaName, limit]) => [quotaName, limit === 'none' ? null : limit]),
  );
}

function printQuotas(terminal: Terminal, { limits, use }: Quotas): void {
  const names = ['instances', 'cpu_cores', 'disk_gb', 'snapshots'] as const;
  const rows = names.map((name) => [name, String(use[name]), String(limits[name] ?? 'none')]);
  printTable(terminal, ['QUOTA', 'IN USE', 'LIMIT'], rows);
}

/** Field by field, so that a new column never shows. A limit that is null does not exist. */
const viewOf = (found: Organization) => ({
  id: found.id,
  name: found.name,
  created_at: Math.floor(found.createdAt / 1000),
  members: found.members,
  tokens: found.tokens,
  limits: found.limits,
  use: found.use,
});
