import type { FastifyInstance } from 'fastify';
import { pino } from 'pino';
import { KeyedLock } from '../../src/domain/keyed-lock.ts';
import { buildApp } from '../../src/http/app.ts';
import { AuditService } from '../../src/services/audit.ts';
import { HealthService } from '../../src/services/health.ts';
import { InstanceKeyListService } from '../../src/services/instance-keys-list.ts';
import { OrganizationService } from '../../src/services/organizations.ts';
import { TokenService } from '../../src/services/tokens.ts';
import { openWorkshop, type Workshop } from '../services/workshop.ts';

export interface Served {
  readonly shop: Workshop;
  readonly app: FastifyInstance;
  readonly url: string;
  readonly tokens: TokenService;
  /** A new token of the workshop's organization. */
  readonly newToken: () => Promise<string>;
  readonly close: () => Promise<void>;
}

/** The whole of the service in this process, listening on a port of its own. */
export async function serve(ports: { from: number; to: number }): Promise<Served> {
  const shop = await openWorkshop(ports);
  const { context, instances, snapshots, keys: instanceKeys } = shop;
  const tokens = new TokenService(context);
  const instanceKeyList = new InstanceKeyListService(context, new KeyedLock());
  const others = {
    audit: new AuditService(context),
    health: new HealthService(context),
    bodyLimitBytes: 65_536,
  };
  const log = pino({ level: 'silent' });
  const app = await buildApp({
    tokens,
    instances,
    snapshots,
    instanceKeys,
    instanceKeyList,
    ...others,
    log,
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const organizations = new OrganizationService(shop.store, context.now);
  let count = 0;
  const newToken = async () => {
    const name = `token ${count++}`;
    return (await organizations.createToken({ organization: 'workshop', name })).token;
  };
  const close = async () => {
    await app.close();
    await shop.close();
  };
  return { shop, app, url, tokens, newToken, close };
}
