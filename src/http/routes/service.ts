import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import { healthzOperation, readyzOperation } from '../../api/service.ts';
import type { HealthService } from '../../services/health.ts';
import { jsonType } from '../error-handler.ts';

/** Is the process alive, is the service ready, what does it speak. */
export const serviceRoutes =
  (health: HealthService): FastifyPluginAsyncTypebox =>
  async (app) => {
    const config = { public: true };
    const probe = { public: true, unlimited: true };

    app.get('/healthz', { config: probe, schema: healthzOperation }, async () => ({
      status: 'ok' as const,
    }));

    app.get('/readyz', { config: probe, schema: readyzOperation }, () => health.requireReady());

    app.get('/openapi.json', { config, schema: { hide: true } }, async (_request, reply) =>
      reply.header('content-type', jsonType).send(JSON.stringify(app.swagger())),
    );
  };
