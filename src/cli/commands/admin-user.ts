import { Argument, type Command, Option } from 'commander';
import { allRoles, type Role } from '../../domain/scopes.ts';
import { type AdminFlags, adminExamples, withAdmin, withAdminFlags } from '../admin-session.ts';
import { printJson, printLine, printTable, readableTime } from '../output.ts';
import type { Terminal } from '../terminal.ts';

interface AddFlags extends AdminFlags {
  readonly role: Role;
}

const examples = adminExamples(
  'berth admin user add acme ann@acme.example --role member',
  'berth admin user list acme',
  'berth admin user role acme ann@acme.example viewer',
  'berth admin user remove acme ann@acme.example',
);

const roles = `
Roles:
  owner   everything, tokens of others and the audit log included
  member  instances, keys and snapshots
  viewer  looks at instances and snapshots
`;

export function addAdminUserCommands(admin: Command, terminal: Terminal): void {
  const user = admin
    .command('user')
    .description('members of organizations and their roles')
    .addHelpText('after', roles + examples);
  const role = new Option('--role <role>', 'what the member may do').choices(allRoles);
  withAdminFlags(user.command('add <org> <email>'))
    .description('make somebody a member')
    .addOption(role.makeOptionMandatory())
    .addHelpText('after', roles + examples)
    .action((org: string, email: string, flags: AddFlags) => add(terminal, org, email, flags));
  withAdminFlags(user.command('list <org>'))
    .description('list the members')
    .addHelpText('after', adminExamples('berth admin user list acme --json'))
    .action((org: string, flags: AdminFlags) => list(terminal, org, flags));
  withAdminFlags(user.command('role <org> <email>'))
    .description('change what a member, and every token of the member, may do')
    .addArgument(new Argument('<role>', 'the new role').choices(allRoles))
    .addHelpText('after', roles + examples)
    .action((org: string, email: string, wanted: Role, flags: AdminFlags) =>
      setRole(terminal, { org, email, role: wanted }, flags),
    );
  withAdminFlags(user.command('remove <org> <email>'))
    .description('end a membership, and every token of the member')
    .addHelpText('after', adminExamples('berth admin user remove acme ann@acme.example'))
    .action((org: string, email: string, flags: AdminFlags) => remove(terminal, org, email, flags));
}

async function add(terminal: Terminal, org: string, email: string, flags: AddFlags): Promise<void> {
  const { role } = flags;
  await withAdmin(terminal, flags, (admin) => admin.members.add(org, email, role));
  if (flags.json) printJson(terminal, { email, role });
  else printLine(terminal, `${email} is a member of ${org} now, as ${role}.`);
}

async function list(terminal: Terminal, org: string, flags: AdminFlags): Promise<void> {
  const found = await withAdmin(terminal, flags, (admin) => admin.members.list(org));
  const members = found.map(({ email, role, joinedAt }) => ({
    email,
    role,
    joined_at: Math.floor(joinedAt / 1000),
  }));
  if (flags.json) return printJson(terminal, members);
  const rows = members.map((one) => [one.email, one.role, readableTime(one.joined_at)]);
  printTable(terminal, ['EMAIL', 'ROLE', 'JOINED'], rows);
}

async function setRole(
  terminal: Terminal,
  wanted: { org: string; email: string; role: Role },
  flags: AdminFlags,
): Promise<void> {
  const { org, email, role } = wanted;
  await withAdmin(terminal, flags, (admin) => admin.members.setRole(org, email, role));
  if (flags.json) printJson(terminal, { email, role });
  else printLine(terminal, `${email} is ${role} of ${org} now.`);
}

async function remove(
  terminal: Terminal,
  org: string,
  email: string,
  flags: AdminFlags,
): Promise<void> {
  await withAdmin(terminal, flags, (admin) => admin.members.remove(org, email));
  if (flags.json) printJson(terminal, {});
  else
    printLine(
      terminal,
      `${email} is no member of ${org} any more, and the member's tokens have ended.`,
    );
}
