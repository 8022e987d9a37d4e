import { type Static, type TSchema, Type } from 'typebox';

/** The body of every answer with a status of 400 or more. */
export const ErrorBody = Type.Object(
  {
    code: Type.Integer({ description: 'The HTTP status, again.' }),
    error: Type.String({
      description: 'A stable machine word, such as not_found, conflict or no_capacity.',
    }),
    message: Type.String({
      description: 'One or two plain sentences that say what to do next. Its wording may change.',
    }),
  },
  {
    $id: 'ErrorBody',
    description: 'The body of every answer with a status of 400 or more.',
    examples: [{ code: 404, error: 'not_found', message: 'Instance "7" was not found.' }],
  },
);
export type ErrorBody = Static<typeof ErrorBody>;

export const Message = Type.Object({
  message: Type.String({ description: 'One sentence for people about what happens now.' }),
});
export type Message = Static<typeof Message>;

/** A message, with an example of it. */
export const messageLike = (message: string) =>
  Type.Object(Message.properties, { examples: [{ message }] });

/** `{id}` in a path: an instance's number in its organization, or its UUID. */
export const InstanceParams = Type.Object({
  id: Type.String({
    description: 'The number of the instance in its organization, such as 0, or its UUID.',
    examples: ['0'],
  }),
});

/** Placeholders for the examples: no real key has these. */
export const examplePublicKey =
  'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ you@laptop';
export const examplePrivateKey =
  '-----BEGIN OPENSSH PRIVATE KEY-----\n...\n-----END OPENSSH PRIVATE KEY-----\n';
export const exampleFingerprint = 'SHA256:2pcKRYoVwhqkCxCU9fFTdo2wWRo5Jcd0VjZ8HyTIQ1c';
export const exampleUuid = '6f7cbb38-8b9b-4c0e-9d38-0f2f5f5f0a01';

/** For an answer that holds a secret. */
export const noStore = {
  'Cache-Control': Type.String({ description: 'Always no-store: the answer holds a secret.' }),
};

export const noSuchInstance =
  'not_found: no instance of your organization has this number or UUID.';
export const engineErrors = {
  502: 'engine_error: what runs the instance refused or failed. Nothing half-done is left behind.',
  504: 'engine_timeout: what runs the instance gave no answer in time. Nothing half-done is left behind.',
} as const;

type ErrorStatus = 400 | 401 | 403 | 404 | 409 | 413 | 415 | 500 | 502 | 503 | 504;
type Errors = Partial<Record<ErrorStatus, string>>;

const bodyErrors: Errors = {
  400: 'invalid_request: the body is not well-formed JSON.',
  413: 'payload_too_large: the body is larger than the service accepts (64 KiB by default).',
  415: 'unsupported_media_type: the body is not JSON.',
};
const tokenErrors: Errors = {
  401: 'unauthorized: the token is missing, malformed, unknown, expired or revoked.',
};
const serviceErrors: Errors = {
  500: 'internal: a defect of the service. Give its operator the X-Request-Id.',
  503: 'unavailable: the service is shutting down, or what it needs cannot be reached. Try again in a moment.',
};

const errorHeaders: Readonly<Record<string, Record<string, TSchema>>> = {
  401: { 'WWW-Authenticate': Type.String({ description: 'Always Bearer.' }) },
  503: { 'Retry-After': Type.String({ description: 'Seconds to wait before the next try.' }) },
};

export interface Answers {
  /** What the success means. */
  readonly description: string;
  readonly headers?: Readonly<Record<string, TSchema>>;
  /** Answers without a token. */
  readonly public?: boolean;
  /** A GET's body is ignored; any other is read, even where the operation wants nothing in it. */
  readonly readsBody?: boolean;
  /** Statuses of this operation alone, and when each comes; they go before the general ones. */
  readonly errors?: Errors;
}

/** Response schemas of a route: its success, and the error body for the statuses that it can answer. */
export function responses<S extends number, T extends TSchema>(
  status: S,
  success: T,
  answers: Answers,
): Record<S, T> & Record<number, TSchema> {
  const { description, headers } = answers;
  const errors = {
    ...(answers.readsBody && bodyErrors),
    ...(!answers.public && tokenErrors),
    ...serviceErrors,
    ...answers.errors,
  };
  const bodies = Object.entries(errors).map(([code, when]) => [code, errorResponse(code, when)]);
  const described = {
    ...success,
    'x-response-description': description,
    ...(headers && { headers }),
  };
  return { ...Object.fromEntries(bodies), [status]: described } as Record<S, T> &
    Record<number, TSchema>;
}

/** `description` and `headers` are for the OpenAPI document; what validates and serializes ignores them. */
function errorResponse(code: string, description: string): TSchema {
  const headers = errorHeaders[code];
  return Type.Unsafe<ErrorBody>({ $ref: 'ErrorBody#', description, ...(headers && { headers }) });
}
