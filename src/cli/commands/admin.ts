import type { Command } from 'commander';
import { adminExamples } from '../admin-session.ts';
import type { Terminal } from '../terminal.ts';
import { addAdminAuditCommands } from './admin-audit.ts';
import { addAdminCatalogCommands } from './admin-catalog.ts';
import { addAdminEngineCommands } from './admin-engine.ts';
import { addAdminImageCommands } from './admin-image.ts';
import { addAdminOrgCommands } from './admin-org.ts';
import { addAdminTokenCommands } from './admin-token.ts';
import { addAdminUserCommands } from './admin-user.ts';

const examples = adminExamples(
  'berth admin org create acme --email ops@acme.example',
  'berth admin token create --org acme --name laptop --expires-in 90d',
);

/** Each noun has a file of its own: `admin-<noun>.ts`. */
export function addAdminCommands(program: Command, terminal: Terminal): void {
  const admin = program
    .command('admin')
    .description('organizations, members and tokens, for who runs the service')
    .addHelpText('after', examples);
  addAdminOrgCommands(admin, terminal);
  addAdminUserCommands(admin, terminal);
  addAdminTokenCommands(admin, terminal);
  addAdminCatalogCommands(admin, terminal);
  addAdminEngineCommands(admin, terminal);
  addAdminAuditCommands(admin, terminal);
  addAdminImageCommands(admin, terminal);
}
