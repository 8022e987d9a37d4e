import { type Static, type TSchema, Type } from 'typebox';

/** The body of every answer with a status of 400 or more. */
export const ErrorBody = Type.Object(
  {
    code: Type.Integer({ description: 'The HTTP status, again.' }),
    error: Type.String({ description: 'A stable machine word.' }),
    message: Type.String({ description: 'One or two sentences that say what to do next.' }),
  },
  { $id: 'ErrorBody', description: 'An error.' },
);
export type ErrorBody = Static<typeof ErrorBody>;

export const Message = Type.Object({ message: Type.String() });
export type Message = Static<typeof Message>;

/** `{id}` in a path: an instance's number in its organization, or its UUID. */
export const InstanceParams = Type.Object({
  id: Type.String({ description: 'The number of the instance in its organization, or its UUID.' }),
});

const errorStatuses = [400, 401, 403, 404, 405, 409, 413, 415, 500, 502, 503, 504] as const;
const withoutTenant = new Set<number>([401, 403]);

/** Response schemas of a route: its success, and the error body for every status that it can answer. */
export function responses<S extends number, T extends TSchema>(
  status: S,
  success: T,
  options: { public?: boolean } = {},
): Record<S, T> & Record<number, TSchema> {
  const errors = errorStatuses
    .filter((code) => !(options.public && withoutTenant.has(code)))
    .map((code) => [code, Type.Unsafe<ErrorBody>({ $ref: 'ErrorBody#' })] as const);
  return { ...Object.fromEntries(errors), [status]: success } as Record<S, T> &
    Record<number, TSchema>;
}
