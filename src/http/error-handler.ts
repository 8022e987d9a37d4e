/** The only file that knows which status an error has. */
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ErrorBody } from '../api/common.ts';
import { AppError, type ErrorKind } from '../domain/errors.ts';
import { sayRule } from './field-rules.ts';

const statuses: Readonly<Record<ErrorKind, number>> = {
  invalid_request: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  conflict: 409,
  no_capacity: 409,
  idempotency_mismatch: 422,
  rate_limited: 429,
  internal: 500,
  engine_error: 502,
  login_refused: 502,
  unavailable: 503,
  engine_timeout: 504,
};

/** What the framework itself refuses, by its status. */
const frameworkErrors: Readonly<Record<number, { error: string; message: string }>> = {
  400: {
    error: 'invalid_request',
    message: 'The request could not be read. Send well-formed HTTP and JSON.',
  },
  401: {
    error: 'unauthorized',
    message: 'The token is missing or wrong. Send "Authorization: Bearer <token>".',
  },
  404: { error: 'not_found', message: 'There is no such path. See /docs for the ones there are.' },
  408: { error: 'request_timeout', message: 'The request did not arrive in time. Try again.' },
  413: {
    error: 'payload_too_large',
    message: 'The request body is too large. A public key fits many times over.',
  },
  414: { error: 'invalid_request', message: 'The path is too long.' },
  415: {
    error: 'unsupported_media_type',
    message: 'Send the body as JSON, with "Content-Type: application/json".',
  },
  417: {
    error: 'invalid_request',
    message: 'The "Expect" header asks for something this service does not do.',
  },
  431: { error: 'invalid_request', message: 'The request headers are too large.' },
  503: { error: 'unavailable', message: 'The service is shutting down. Try again in a moment.' },
};
const internal = {
  error: 'internal',
  message:
    'Something went wrong in the service. Try again; if it stays, give the operator the X-Request-Id.',
};

export const jsonType = 'application/json; charset=utf-8';

export function errorBody(code: number, error: string, message: string): ErrorBody {
  return { code, error, message };
}

/** The body for what the framework or the HTTP parser refused. */
export function frameworkErrorBody(status: number): ErrorBody {
  const known =
    frameworkErrors[status] ?? (status >= 500 ? internal : frameworkErrors[400]) ?? internal;
  return errorBody(status, known.error, known.message);
}

export function handleError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const body = toBody(error, request);
  request.errorWord = body.error;
  // What the framework refuses by itself has met no hook yet.
  reply.header('x-request-id', request.id);
  if (body.code === 401) reply.header('www-authenticate', 'Bearer');
  if (body.code === 503) reply.header('retry-after', '5');
  reply
    .code(body.code)
    .header('content-type', jsonType)
    .header('cache-control', 'no-store')
    .send(JSON.stringify(body));
}

function toBody(error: unknown, request: FastifyRequest): ErrorBody {
  if (error instanceof AppError) {
    if (error.detail ?? error.cause)
      request.log.warn({ err: error.cause, detail: error.detail }, error.message);
    return errorBody(statuses[error.kind], error.kind, error.message);
  }
  const { statusCode = 500, validation } = error as FastifyError;
  if (validation)
    return errorBody(400, 'invalid_request', validationMessage(error as FastifyError));
  if (statusCode >= 400 && statusCode < 500) return frameworkErrorBody(statusCode);
  request.log.error({ err: error }, 'a defect');
  return errorBody(500, internal.error, internal.message);
}

/** Names the field, and what it should be. */
function validationMessage(error: FastifyError): string {
  const problem = error.validation?.[0];
  const where = error.validationContext ?? 'body';
  if (!problem) return 'The request is not valid.';
  const field = problem.instancePath.replace(/^\//, '').replaceAll('/', '.');
  if (problem.keyword === 'required')
    return `The field "${problem.params.missingProperty}" is missing.`;
  if (field === '') return `The ${where} must be a JSON object.`;
  const allowed = constants(error);
  if (allowed.length > 0) return `The field "${field}" must be one of: ${allowed.join(', ')}.`;
  return `The field "${field}" ${sayRule(problem.keyword, problem.params)}.`;
}

function constants(error: FastifyError): unknown[] {
  const problems = error.validation ?? [];
  return problems.flatMap((problem) =>
    problem.keyword === 'const' ? [problem.params.allowedValue] : [],
  );
}

/** A path that exists under other methods is a 405, any other unknown one a 404. */
export function handleUnknownRoute(
  app: FastifyInstance,
  allowedMethods: (path: string) => string[],
): void {
  app.setNotFoundHandler((request, reply) => {
    const methods = allowedMethods(request.url.split('?', 1)[0] ?? '/');
    reply.header('content-type', jsonType);
    if (methods.length === 0) return reply.code(404).send(JSON.stringify(frameworkErrorBody(404)));
    const allow = methods.join(', ');
    const message = `This path does not answer ${request.method}, but: ${allow}.`;
    return reply
      .code(405)
      .header('allow', allow)
      .send(JSON.stringify(errorBody(405, 'method_not_allowed', message)));
  });
}
