import { type Static, Type } from 'typebox';
import { responses } from './common.ts';

export const AuditQuery = Type.Object({
  limit: Type.Optional(
    Type.String({
      description: 'How many lines at most: a whole number from 1 to 1000. Default: 100.',
      examples: ['100'],
    }),
  ),
  before: Type.Optional(
    Type.String({
      description: 'Only lines before the one with this id; the Link header has it ready.',
      examples: ['4711'],
    }),
  ),
});
export type AuditQuery = Static<typeof AuditQuery>;

/** One line of the audit log. */
export const AuditLine = Type.Object({
  id: Type.Integer({ description: 'Which line of your log it is; 1 is the oldest.' }),
  at: Type.String({ description: 'RFC 3339, UTC.' }),
  token: Type.Optional(
    Type.String({
      description:
        'The name of the token that asked; left out when it is gone, or when the service acted by itself.',
    }),
  ),
  request_id: Type.Optional(
    Type.String({
      description: 'The X-Request-Id of the request; left out for the end of slow work.',
    }),
  ),
  action: Type.String({ description: 'What was asked, such as key.add.' }),
  subject: Type.String({
    description: 'What it was about: a UUID, a name, a fingerprint. Never key material.',
  }),
  outcome: Type.String({ description: 'What came of it, such as done, or refused 409.' }),
  hash: Type.Optional(
    Type.String({
      description:
        'SHA-256, in hex, of this line and the hash of the one before it; left out for lines from before there was a chain.',
    }),
  ),
});
export type AuditLine = Static<typeof AuditLine>;

export const AuditLog = Type.Array(AuditLine, {
  examples: [
    [
      {
        id: 2,
        at: '2025-11-20T00:53:20.000Z',
        token: 'laptop',
        request_id: 'c1f0b7',
        action: 'snapshot.create',
        subject: 'before-upgrade',
        outcome: 'accepted',
        hash: '4f1c7c0a6a8d5f1b6f0a53b0c8ad3b54f2a6f3a1f7d0b6a7f4a7a7b1e7c0d9e2',
      },
    ],
  ],
});
export type AuditLog = Static<typeof AuditLog>;

export const listAuditOperation = {
  operationId: 'listAudit',
  summary: 'Read the audit log',
  description:
    'Everything that was asked to change something in your organization, refusals included, newest first. The lines are chained by their hashes; the operator of the service verifies the chain with "berth admin audit verify".',
  tags: ['Account'],
  querystring: AuditQuery,
  response: responses(200, AuditLog, {
    description: 'The lines, newest first; possibly none.',
    headers: {
      Link: Type.String({
        description: 'The next page, as <...>; rel="next"; absent on the last one (RFC 8288).',
      }),
    },
    errors: { 400: 'invalid_request: "limit" or "before" is not a number that fits.' },
  }),
};
