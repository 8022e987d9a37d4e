import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance, FastifySchema } from 'fastify';
import { Type } from 'typebox';
import { RemoveKeyParams } from '../api/instance-keys.ts';

/** The OpenAPI 3.1 document, from the schemas that validate; `/docs` shows it. */
export async function describeApi(app: FastifyInstance): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Berth',
        version: '1.0.0',
        description:
          'Instances and snapshots on machines you own. Every operation sees one organization only.',
      },
      components: { securitySchemes: { token: { type: 'http', scheme: 'bearer' } } },
      security: [{ token: [] }],
    },
    transform: ({ schema, url, ...rest }) => ({ ...rest, ...nameWildcard(schema, url) }),
    refResolver: {
      buildLocalReference: (json, _baseUri, _fragment, index) =>
        String(json.$id ?? `schema-${index}`),
    },
  });
}

export async function showApi(app: FastifyInstance): Promise<void> {
  await app.register(swaggerUi, { routePrefix: '/docs', staticCSP: true });
}

/** The wildcard that takes a fingerprint has a name for readers. */
function nameWildcard(schema: FastifySchema, url: string): { schema: FastifySchema; url: string } {
  if (!url.endsWith('/keys/*')) return { schema, url };
  const { '*': fingerprint, ...others } = RemoveKeyParams.properties;
  return {
    schema: { ...schema, params: Type.Object({ ...others, fingerprint }) },
    url: url.replace('*', ':fingerprint'),
  };
}
