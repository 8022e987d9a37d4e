import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance, FastifySchema } from 'fastify';
import { Type } from 'typebox';
import { RemoveKeyParams } from '../api/instance-keys.ts';
import { addCommonParts, addErrorExamples } from './openapi-answers.ts';

const description = `Instances and snapshots on machines you own. Every operation sees one organization only: what
belongs to another one does not exist, and is a 404.

Send \`Authorization: Bearer <token>\`. Bodies are JSON. A body is optional where all its fields are; unknown fields are
ignored, and \`null\` counts as absent. Every answer has an \`X-Request-Id\`: yours when you sent a sane one, else a
new one. Every answer with a status of 400 or more has the same body, an \`ErrorBody\`.

Repeat a POST or PATCH whose answer was lost under the same \`Idempotency-Key\`: it gets the answer of the first.
\`RateLimit-Limit\`, \`RateLimit-Remaining\` and \`RateLimit-Reset\` (seconds) tell how many requests are left.`;

const contact = { name: 'The operator of this service' };
const license = { name: 'Apache License 2.0', identifier: 'Apache-2.0' };

const tags = [
  { name: 'Instance keys', description: 'Who may log in to an instance.' },
  { name: 'Keys', description: 'The address book of keys, and where a key is authorized.' },
  { name: 'Snapshots', description: 'Copies of the disks of instances, to restore as new ones.' },
  { name: 'Instances', description: 'Machines to log in to.' },
  { name: 'Account', description: 'Who calls, and tokens.' },
  { name: 'Catalog', description: 'What instances can be, and its price. Public.' },
  { name: 'Service', description: 'Is the service well? Public: these want no token.' },
];

/** The OpenAPI 3.1 document, from the schemas that validate; `/docs` shows it. */
export async function describeApi(app: FastifyInstance, version: string): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Berth', version, description, contact, license },
      // Relative: the document is right wherever the service is reached.
      servers: [{ url: '/', description: 'The service that this document comes from.' }],
      tags,
      components: {
        securitySchemes: {
          token: { type: 'http', scheme: 'bearer', description: 'A token, as "berth_...".' },
        },
      },
      security: [{ token: [] }],
    },
    transform: ({ schema, url, route, ...rest }) => ({
      ...rest,
      ...nameWildcard(addCommonParts(schema, route), url),
    }),
    transformObject: (document) => {
      if (!('openapiObject' in document)) return document.swaggerObject;
      const { paths = {} } = document.openapiObject;
      for (const [path, operations] of Object.entries(paths)) {
        relaxBodies(operations);
        addErrorExamples(path, operations ?? {});
      }
      return document.openapiObject;
    },
    refResolver: {
      buildLocalReference: (json, _baseUri, _fragment, index) =>
        String(json.$id ?? `schema-${index}`),
    },
  });
}

export async function showApi(app: FastifyInstance): Promise<void> {
  await app.register(swaggerUi, { routePrefix: '/docs', staticCSP: true });
}

interface DescribedBody {
  required?: boolean;
  content?: Record<string, { schema?: { required?: readonly string[] } }>;
}

/** The plugin marks every body as required; the service wants one only where a field of it is. */
function relaxBodies(path: object | undefined): void {
  for (const operation of Object.values(path ?? {})) {
    const body: DescribedBody | undefined = Object(operation).requestBody;
    if (!body) continue;
    const schemas = Object.values(body.content ?? {}).map((media) => media.schema);
    body.required = schemas.some((schema) => (schema?.required ?? []).length > 0);
  }
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
