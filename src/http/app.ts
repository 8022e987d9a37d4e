import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { ErrorBody } from '../api/common.ts';
import type { HealthService } from '../services/health.ts';
import type { InstanceKeyService } from '../services/instance-keys.ts';
import type { InstanceKeyListService } from '../services/instance-keys-list.ts';
import type { InstanceService } from '../services/instances.ts';
import type { SnapshotService } from '../services/snapshots.ts';
import type { TokenService } from '../services/tokens.ts';
import { requireToken } from './auth.ts';
import { readBodies } from './body.ts';
import { frameworkErrorBody, handleError, handleUnknownRoute, jsonType } from './error-handler.ts';
import { listFastPath } from './list-fast-path.ts';
import { describeApi, showApi } from './openapi.ts';
import { RouteTable } from './route-table.ts';
import { instanceKeyRoutes } from './routes/instance-keys.ts';
import { instanceRoutes } from './routes/instances.ts';
import { serviceRoutes } from './routes/service.ts';
import { snapshotRoutes } from './routes/snapshots.ts';
import { tokenRoutes } from './routes/tokens.ts';

export interface AppDependencies {
  readonly tokens: TokenService;
  readonly instances: InstanceService;
  readonly instanceKeys: InstanceKeyService;
  readonly instanceKeyList: InstanceKeyListService;
  readonly snapshots: SnapshotService;
  readonly health: HealthService;
  readonly log: FastifyBaseLogger;
  readonly bodyLimitBytes: number;
}

/** Clients give up after 30 s; a request that trickles in must not hold a connection for longer. */
const serverTimeouts = {
  requestTimeout: 20_000,
  headersTimeout: 10_000,
  keepAliveTimeout: 72_000,
  connectionsCheckingInterval: 5000,
};
const sanePattern = /^[A-Za-z0-9._:-]{1,128}$/;

/** The HTTP side, whole, but not listening: tests inject requests into it. */
export async function buildApp(deps: AppDependencies): Promise<FastifyInstance> {
  const fastPath = listFastPath(deps.tokens, deps.snapshots);
  let closing = false;
  const app = Fastify({
    serverFactory: (handler) =>
      createServer(serverTimeouts, (request, response) => {
        if (closing || !fastPath(request, response)) handler(request, response);
      }),
    logController: new LogController({ disableRequestLogging: true }),
    loggerInstance: deps.log,
    bodyLimit: deps.bodyLimitBytes,
    routerOptions: { maxParamLength: 512 },
    genReqId: (request) => requestId(request as IncomingMessage),
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, useDefaults: false } },
    frameworkErrors: handleError,
    clientErrorHandler: refuseUnparsed,
  }).withTypeProvider<TypeBoxTypeProvider>();
  app.addHook('preClose', async () => {
    closing = true;
  });
  const routes = new RouteTable();
  app.addHook('onRoute', (route) => routes.add(route));
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
  });
  app.addHook('onResponse', async (request, reply) => {
    const { method, url } = request;
    const quiet = method === 'GET' && reply.statusCode < 400;
    const fields = { method, url, status: reply.statusCode, ms: Math.round(reply.elapsedTime) };
    request.log[quiet ? 'debug' : 'info'](fields, 'answered');
  });
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

/** The caller's own id when it is a sane one, so that its logs and ours meet. */
function requestId(request: IncomingMessage): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && sanePattern.test(given) ? given : randomUUID();
}

const parserStatuses: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};

/** What is not even HTTP gets the contract's error body too, written by hand: there is no reply object yet. */
function refuseUnparsed(
  this: FastifyInstance<Server>,
  error: Error & { code?: string },
  socket: Socket,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
  const status = parserStatuses[error.code ?? ''] ?? 400;
  const body = JSON.stringify(frameworkErrorBody(status));
  const head = [
    `HTTP/1.1 ${status} ${status === 400 ? 'Bad Request' : 'Refused'}`,
    `Content-Type: ${jsonType}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${randomUUID()}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
