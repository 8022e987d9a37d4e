/**
 * What an operation may be sent and may answer besides what it says itself, read from its route: a new route has it
 * without anybody's thinking of it. What the operation says goes first.
 */
import type { FastifySchema, RouteOptions } from 'fastify';
import { type TSchema, Type } from 'typebox';
import { frameworkErrorBody } from './error-handler.ts';

const retryAfter = {
  'Retry-After': Type.String({ description: 'Seconds to wait before the next try.' }),
};
const rateLimited = {
  ...retryAfter,
  'RateLimit-Limit': Type.String({ description: 'Requests that are allowed in one window.' }),
  'RateLimit-Remaining': Type.String({ description: 'How many of them are left: 0.' }),
  'RateLimit-Reset': Type.String({ description: 'Seconds until there is room again.' }),
};

const keyHeader = {
  'idempotency-key': Type.Optional(
    Type.String({
      description:
        'A key of your own choice, 1 to 255 visible ASCII characters such as a UUID. The same request under the same key gets the same answer for ten minutes, a generated private key included, and is carried out once.',
      examples: ['0b9d2f3c-1f0a-4d5e-9c51-6f1f0f9c8a77'],
    }),
  ),
};

/** The schema for the document, with what holds for every operation of its kind. */
export function addCommonParts(schema: FastifySchema | undefined, route: RouteOptions) {
  if (!schema || schema.hide) return schema ?? {};
  const isKeyed = takesKey(route);
  const own = Object(schema.headers).properties ?? {};
  const answers: Record<number, TSchema> = Object(schema.response);
  return {
    ...schema,
    ...(isKeyed && { headers: Type.Object({ ...own, ...keyHeader }) }),
    response: {
      ...commonAnswers(route, isKeyed),
      ...answers,
      ...(isKeyed && answers[409] && { 409: withUnderWay(answers[409]) }),
    },
  };
}

const underWay = 'a request under the same Idempotency-Key is still under way.';

const withUnderWay = (conflict: TSchema): TSchema => ({
  ...conflict,
  description: `${Object(conflict).description} Or ${underWay}`,
});

const takesKey = ({ method, config }: RouteOptions): boolean =>
  !config?.public && [method].flat().some((one) => one === 'POST' || one === 'PATCH');

function commonAnswers(route: RouteOptions, isKeyed: boolean): Record<number, TSchema> {
  const { public: isPublic, scope = 'admin', unlimited } = route.config ?? {};
  const scopes = [scope].flat().join(' or ');
  return {
    ...(isPublic && { 400: refusal('invalid_request: the request is not well-formed HTTP.') }),
    ...(!isPublic &&
      scope !== 'any' && {
        403: refusal(`forbidden: the token is valid, but lacks the scope ${scopes}.`),
      }),
    ...(isKeyed && {
      409: refusal(`conflict: ${underWay}`),
      422: refusal(
        'idempotency_mismatch: another request was sent under the same Idempotency-Key.',
      ),
    }),
    ...(!unlimited && {
      429: refusal('rate_limited: too many requests of this token or address.', rateLimited),
    }),
  };
}

function refusal(description: string, headers?: Readonly<Record<string, TSchema>>): TSchema {
  return Type.Unsafe({ $ref: 'ErrorBody#', description, ...(headers && { headers }) });
}

interface Described {
  readonly operationId?: string;
  readonly requestBody?: DescribedBody;
  readonly responses?: Readonly<Record<string, DescribedAnswer>>;
}

interface DescribedBody {
  readonly content?: Record<string, { readonly schema?: { readonly properties?: object } }>;
}

interface DescribedAnswer {
  readonly description?: string;
  readonly content?: Record<string, { example?: unknown; examples?: unknown }>;
}

/** Gives every error an example: its word, from its description, and a message as the service words it. */
export function addErrorExamples(path: string, operations: object): void {
  for (const operation of Object.values(operations)) addExamplesTo(path, Object(operation));
}

function addExamplesTo(path: string, operation: Described): void {
  for (const [code, answer] of Object.entries(operation.responses ?? {})) {
    const media = answer.content?.['application/json'];
    const status = Number(code);
    if (status < 400 || !media || media.example || media.examples) continue;
    const word = /^[a-z_]+/.exec(answer.description ?? '')?.[0] ?? '';
    const message = exampleMessage(status, path, operation);
    media.example = { code: status, error: word, message };
  }
}

function exampleMessage(status: number, path: string, operation: Described): string {
  const noun = nounOf(path);
  switch (status) {
    case 400:
      return badRequest(operation);
    case 404:
      return `${noun} "7" was not found.`;
    case 409:
      return path.startsWith('/v1/instances/{id}')
        ? 'Instance 0 is STOPPED. Wait until it is RUNNING, or start it, and try again.'
        : `The change of this ${noun.toLowerCase()} meets another one. Look at the list and try again.`;
    default:
      return messages[status] ?? frameworkErrorBody(status).message;
  }
}

const messages: Readonly<Record<number, string>> = {
  403: 'This token may not do that. Ask an owner of the organization for a token that may.',
  422: 'Another request was sent under this Idempotency-Key. Take a new key for a new request.',
  429: 'This token has made too many requests. Wait 7 seconds and try again.',
  502: 'The instance could not be reached. Look at its state and try again.',
  504: 'The engine did not answer in time. Try again in a minute.',
};

function nounOf(path: string): string {
  if (path.startsWith('/v1/instances') || path === '/v1/snapshots/create') return 'Instance';
  if (path.startsWith('/v1/snapshots')) return 'Snapshot';
  return path.startsWith('/v1/keys') ? 'Key' : 'Token';
}

function badRequest(operation: Described): string {
  const { properties } = operation.requestBody?.content?.['application/json']?.schema ?? {};
  const [field] = Object.keys(properties ?? {});
  return field ? `The field "${field}" is not valid.` : frameworkErrorBody(400).message;
}
