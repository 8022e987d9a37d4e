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
import type { HealthService } from '../services/health.ts';
import type { InstanceKeyService } from '../services/instance-keys.ts';
import type { InstanceKeyListService } from '../services/instance-keys-list.ts';
import type { InstanceService } from '../services/instances.ts';
import type { SnapshotService } from '../services/snapshots.ts';
import type { TokenService } from '../services/tokens.ts';
import { auditRefusals } from './audit-refusals.ts';
import { requireToken } from './auth.ts';
import { readBodies } from './body.ts';
import { handleError, handleUnknownRoute } from './error-handler.ts';
import { listFastPath } from './list-fast-path.ts';
import { describeApi, showApi } from './openapi.ts';
import { requestId, tokenPattern } from './request-id.ts';
import { RouteTable } from './route-table.ts';
import { instanceKeyRoutes } from './routes/instance-keys.ts';
import { instanceRoutes } from './routes/instances.ts';
import { serviceRoutes } from './routes/service.ts';
import { snapshotRoutes } from './routes/snapshots.ts';
import { tokenRoutes } from './routes/tokens.ts';
import { openServer, refuseUnparsed, refuseWithoutHost } from './server.ts';
import { keepTickShapes } from './tick-shapes.ts';

export interface AppDependencies {
  readonly tokens: TokenService;
  readonly instances: InstanceService;
  readonly instanceKeys: InstanceKeyService;
  readonly instanceKeyList: InstanceKeyListService;
  readonly snapshots: SnapshotService;
  readonly health: HealthService;
  readonly audit: AuditService;
  readonly log: FastifyBaseLogger;
  readonly bodyLimitBytes: number;
}

/** The HTTP side, whole, but not listening: tests inject requests into it. */
export async function buildApp(deps: AppDependencies): Promise<FastifyInstance> {
  keepTickShapes();
  const fastPath = listFastPath(deps.tokens, deps.snapshots);
  let closing = false;
  const app = Fastify({
    serverFactory: (handler) =>
      openServer((request, response) => {
        if (!closing && fastPath(request, response)) return;
        if (!refuseWithoutHost(request, response)) handler(request, response);
      }),
    logController: new LogController({ disableRequestLogging: true }),
    loggerInstance: deps.log,
    bodyLimit: deps.bodyLimitBytes,
    routerOptions: { maxParamLength: 512 },
    genReqId: (request) => requestId(request as IncomingMessage),
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, useDefaults: false } },
    frameworkErrors: handleError,
    clientErrorHandler: (error, socket) => refuseUnparsed(error, socket),
  }).withTypeProvider<TypeBoxTypeProvider>();
  app.addHook('preClose', async () => {
    closing = true;
  });
  const routes = new RouteTable();
  app.addHook('onRoute', (route) => routes.add(route));
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
  });
  app.addHook('onResponse', logAnswer);
  auditRefusals(app, deps.audit);
  app.setErrorHandler(handleError);
  handleUnknownRoute(app, (path) => routes.methodsFor(path));
  readBodies(app);
  requireToken(app, deps.tokens);
  app.addSchema(ErrorBody);
  await describeApi(app);
  await registerRoutes(app, deps);
  return app;
}

async function registerRoutes(app: FastifyInstance, deps: AppDependencies): Promise<void> {
  await app.register(instanceKeyRoutes(deps.instanceKeys, deps.instanceKeyList));
  await app.register(snapshotRoutes(deps.snapshots));
  await app.register(instanceRoutes(deps.instances));
  await app.register(tokenRoutes(deps.tokens));
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
  const quiet = method === 'GET' && reply.statusCode < 400;
  const fields = { method, path, status: reply.statusCode, ms: Math.round(reply.elapsedTime) };
  request.log[quiet ? 'debug' : 'info'](fields, 'answered');
}
