import type { IncomingMessage } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { ErrorBody } from '../api/common.ts';
import type { AuditService } from '../services/audit.ts';
import type { CatalogService } from '../services/catalog.ts';
import type { HealthService } from '../services/health.ts';
import type { InstanceKeyService } from '../services/instance-keys.ts';
import type { InstanceKeyListService } from '../services/instance-keys-list.ts';
import type { InstanceModifyService } from '../services/instance-modify.ts';
import type { InstanceService } from '../services/instances.ts';
import type { KeptAnswerService } from '../services/kept-answers.ts';
import type { KeyPlaceService } from '../services/key-places.ts';
import type { KeyService } from '../services/keys.ts';
import type { SnapshotListService } from '../services/snapshot-list.ts';
import type { SnapshotService } from '../services/snapshots.ts';
import type { TokenService } from '../services/tokens.ts';
import { auditRefusals } from './audit-refusals.ts';
import { requireToken } from './auth.ts';
import { readBodies } from './body.ts';
import { Draining } from './draining.ts';
import { type Edge, openEdge, refuseCounted } from './edge.ts';
import { handleError, handleUnknownRoute } from './error-handler.ts';
import { keepAnswers } from './idempotency.ts';
import { listFastPath } from './list-fast-path.ts';
import { metricsRoute } from './metrics.ts';
import { describeApi, showApi } from './openapi.ts';
import { requestId, tokenPattern } from './request-id.ts';
import { RouteTable } from './route-table.ts';
import { auditRoutes } from './routes/audit.ts';
import { catalogRoutes } from './routes/catalog.ts';
import { instanceKeyRoutes } from './routes/instance-keys.ts';
import { instanceModifyRoutes } from './routes/instance-modify.ts';
import { instanceRoutes } from './routes/instances.ts';
import { keyRoutes } from './routes/keys.ts';
import { serviceRoutes } from './routes/service.ts';
import { snapshotRoutes } from './routes/snapshots.ts';
import { tokenRoutes } from './routes/tokens.ts';
import { openServer, refuse, refuseUnparsed, refuseWithoutHost } from './server.ts';
import { keepTickShapes } from './tick-shapes.ts';

export interface AppDependencies {
  readonly tokens: TokenService;
  readonly catalogs: CatalogService;
  readonly instances: InstanceService;
  readonly instanceModify: InstanceModifyService;
  readonly instanceKeys: InstanceKeyService;
  readonly instanceKeyList: InstanceKeyListService;
  readonly keys: KeyService;
  readonly keyPlaces: KeyPlaceService;
  readonly snapshots: SnapshotService;
  readonly snapshotList: SnapshotListService;
  readonly health: HealthService;
  readonly audit: AuditService;
  readonly keptAnswers: KeptAnswerService;
  readonly log: FastifyBaseLogger;
  readonly bodyLimitBytes: number;
  /** Of the program, for the API's description. */
  readonly version: string;
  /** Undefined: plain HTTP from anywhere, without limits. */
  readonly edge?: Edge;
  /** Callers wait for it: what is told of instances is to be true already. */
  readonly settled?: Promise<void>;
}

/** The HTTP side, whole, but not listening: tests inject requests into it. */
export async function buildApp(deps: AppDependencies): Promise<FastifyInstance> {
  keepTickShapes();
  const edge = deps.edge ?? openEdge(deps.log);
  const { limiter, callers, metrics } = edge;
  const { tokens, snapshots } = deps;
  const fastPath = listFastPath({ tokens, snapshots, limiter, statistics: metrics?.http });
  const draining = new Draining();
  const app = Fastify({
    serverFactory: (handler) =>
      openServer((request, response) => {
        if (draining.isClosing) return refuse(response, 503);
        if (fastPath(request, response)) return;
        if (refuseWithoutHost(request, response)) return;
        draining.begin(response);
        handler(request, response);
      }, edge.tls),
    // The framework's own answer is not in the contract's words.
    return503OnClosing: false,
    trustProxy: callers.isTrusted,
    logController: new LogController({ disableRequestLogging: true }),
    loggerInstance: deps.log,
    bodyLimit: deps.bodyLimitBytes,
    routerOptions: { maxParamLength: 512 },
    genReqId: (request) => requestId(request as IncomingMessage),
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, useDefaults: false } },
    frameworkErrors: refuseCounted(limiter),
    clientErrorHandler: (error, socket) => refuseUnparsed(error, socket),
  }).withTypeProvider<TypeBoxTypeProvider>();
  app.addHook('preClose', async () => {
    draining.close(app.server);
  });
  draining.watch(app.server);
  const routes = new RouteTable();
  app.addHook('onRoute', (route) => routes.add(route));
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
  });
  app.addHook('onResponse', logAnswer);
  metrics?.watch(app);
  auditRefusals(app, deps.audit);
  app.setErrorHandler(handleError);
  handleUnknownRoute(app, (path) => routes.methodsFor(path));
  readBodies(app);
  requireToken(app, tokens, limiter);
  app.addHook('onRequest', async (request) => {
    if (!request.routeOptions.config.public) await deps.settled;
  });
  keepAnswers(app, deps.keptAnswers);
  app.addSchema(ErrorBody);
  await describeApi(app, deps.version);
  await registerRoutes(app, deps);
  if (metrics && edge.metricsToken !== undefined)
    await app.register(metricsRoute(metrics, edge.metricsToken, limiter));
  return app;
}

async function registerRoutes(app: FastifyInstance, deps: AppDependencies): Promise<void> {
  await app.register(instanceKeyRoutes(deps.instanceKeys, deps.instanceKeyList));
  await app.register(keyRoutes(deps.keys, deps.keyPlaces));
  await app.register(snapshotRoutes(deps.snapshots, deps.snapshotList, deps.tokens));
  await app.register(instanceRoutes(deps.instances));
  await app.register(instanceModifyRoutes(deps.instanceModify));
  await app.register(tokenRoutes(deps.tokens));
  await app.register(auditRoutes(deps.audit));
  await app.register(catalogRoutes(deps.catalogs));
  await app.register(serviceRoutes(deps.health));
  await app.register(async (docs) => {
    docs.addHook('onRoute', (route) => {
      route.config = { ...route.config, public: true };
    });
    await showApi(docs);
  });
}

/** Reads that went well are too many to log; a query, or a token that strayed into a path, never is. */
async function logAnswer(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { method } = request;
  const path = request.url.split('?', 1)[0]?.replace(tokenPattern, '(token)').slice(0, 512);
  // Of a flood the limiter writes one line.
  const quiet = (method === 'GET' && reply.statusCode < 400) || reply.statusCode === 429;
  const fields = { method, path, status: reply.statusCode, ms: Math.round(reply.elapsedTime) };
  request.log[quiet ? 'debug' : 'info'](fields, 'answered');
}
