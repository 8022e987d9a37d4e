import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import { Type } from 'typebox';
import { responses } from '../../api/common.ts';
import { Readiness } from '../../api/service.ts';
import type { HealthService } from '../../services/health.ts';
import { jsonType } from '../error-handler.ts';

/** Is the process alive, is the service ready, what does it speak. */
export const serviceRoutes =
  (health: HealthService): FastifyPluginAsyncTypebox =>
  async (app) => {
    const config = { public: true };
    const tags = ['Service'];
    const alive = responses(200, Type.Object({ status: Type.Literal('ok') }), { public: true });

    app.get(
      '/healthz',
      {
        config,
        schema: {
          operationId: 'healthz',
          summary: 'Is the process alive?',
          tags,
          security: [],
          response: alive,
        },
      },
      async () => ({ status: 'ok' as const }),
    );

    app.get(
      '/readyz',
      {
        config,
        schema: {
          operationId: 'readyz',
          summary: 'Do store and engine answer?',
          tags,
          security: [],
          response: responses(200, Readiness, { public: true }),
        },
      },
      () => health.requireReady(),
    );

    app.get('/openapi.json', { config, schema: { hide: true } }, async (_request, reply) =>
      reply.header('content-type', jsonType).send(JSON.stringify(app.swagger())),
    );
  };
