import type { FastifyInstance } from 'fastify';
import { pino } from 'pino';
import type { Catalog } from '../../src/domain/catalog.ts';
import { KeyedLock } from '../../src/domain/keyed-lock.ts';
import { buildApp } from '../../src/http/app.ts';
import type { Edge } from '../../src/http/edge.ts';
import { AdminTokenService } from '../../src/services/admin-tokens.ts';
import { AuditService } from '../../src/services/audit.ts';
import { CatalogService } from '../../src/services/catalog.ts';
import type { ServiceContext } from '../../src/services/context.ts';
import { HealthService } from '../../src/services/health.ts';
import { InstanceKeyListService } from '../../src/services/instance-keys-list.ts';
import { KeptAnswerService } from '../../src/services/kept-answers.ts';
import { KeyPlaceService } from '../../src/services/key-places.ts';
import { KeyReader } from '../../src/services/key-reader.ts';
import { KeyService } from '../../src/services/keys.ts';
import { SnapshotListService } from '../../src/services/snapshot-list.ts';
import { TokenService } from '../../src/services/tokens.ts';
import { openWorkshop, type Workshop } from '../services/workshop.ts';

export interface Served {
  readonly shop: Workshop;
  readonly app: FastifyInstance;
  readonly url: string;
  readonly tokens: TokenService;
  readonly snapshotList: SnapshotListService;
  /** A new token of the workshop's organization. */
  readonly newToken: () => Promise<string>;
  readonly close: () => Promise<void>;
}

/** The whole of the service in this process, listening on a port of its own. */
export async function serve(
  ports: { from: number; to: number },
  makeEdge?: (context: ServiceContext) => Edge,
  catalog?: Catalog,
  settled?: Promise<void>,
): Promise<Served> {
  const shop = await openWorkshop(ports, catalog);
  const { context, instances, instanceModify, snapshots, keys: instanceKeys } = shop;
  const tokens = new TokenService(context);
  const keyReader = new KeyReader(context);
  const instanceKeyList = new InstanceKeyListService(context, new KeyedLock(), keyReader);
  const others = {
    audit: new AuditService(context),
    catalogs: new CatalogService(context, shop.catalog, shop.placing),
    keptAnswers: new KeptAnswerService(context, 'test'),
    health: new HealthService(context),
    keys: new KeyService(context),
    keyPlaces: new KeyPlaceService(context, keyReader),
    snapshotList: new SnapshotListService(context, snapshots),
    bodyLimitBytes: 65_536,
    version: 'test',
  };
  const log = pino({ level: 'silent' });
  const edge = makeEdge?.(context);
  const app = await buildApp({
    tokens,
    instances,
    instanceModify,
    snapshots,
    instanceKeys,
    instanceKeyList,
    ...others,
    ...(edge && { edge }),
    ...(settled && { settled }),
    log,
  });
  const plainUrl = await app.listen({ host: '127.0.0.1', port: 0 });
  const url = edge?.tls ? plainUrl.replace('http:', 'https:') : plainUrl;
  const adminTokens = new AdminTokenService(shop.store, context.now);
  let count = 0;
  const newToken = async () => {
    const name = `token ${count++}`;
    return (await adminTokens.create({ organization: 'workshop', name })).token;
  };
  const close = async () => {
    await app.close();
    await shop.close();
  };
  return { shop, app, url, tokens, snapshotList: others.snapshotList, newToken, close };
}
