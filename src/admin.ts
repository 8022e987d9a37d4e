import { type Environment, loadConfig } from './config.ts';
import { makeDataFolder } from './data-folder.ts';
import { AdminAuditService } from './services/admin-audit.ts';
import { AdminTokenService } from './services/admin-tokens.ts';
import { MemberService } from './services/members.ts';
import { OrganizationService } from './services/organizations.ts';
import { openStore } from './store/database.ts';

export type Admin = Awaited<ReturnType<typeof openAdmin>>;

/** What `berth admin` uses: the database of this machine, beside a running service or without one. */
export async function openAdmin(env: Environment) {
  const config = loadConfig(env);
  makeDataFolder(config.dataDir);
  const store = await openStore(config.databaseUrl);
  return {
    organizations: new OrganizationService(store, Date.now),
    members: new MemberService(store, Date.now),
    tokens: new AdminTokenService(store, Date.now),
    audit: new AdminAuditService(store),
    close: () => store.close(),
  };
}
