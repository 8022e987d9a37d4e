import { type Static, Type } from 'typebox';
import { exampleUuid, messageLike, noSuchInstance, responses } from './common.ts';

export const Snapshot = Type.Object({
  createdAt: Type.Integer({
    description: 'When it was asked for; seconds since the Unix epoch, UTC.',
  }),
  id: Type.String({ description: 'The UUID of the snapshot.' }),
  minimumDiskSizeGb: Type.Integer({
    description:
      'The smallest disk, in GB, that a restore accepts; the size of the source disk while CREATING.',
  }),
  name: Type.String({ description: 'Unique in the organization.' }),
  status: Type.Union([Type.Literal('CREATING'), Type.Literal('READY'), Type.Literal('FAILED')], {
    description: 'Only a READY one can be restored.',
  }),
});
export type Snapshot = Static<typeof Snapshot>;

export const SnapshotList = Type.Array(Snapshot, {
  examples: [
    [
      {
        createdAt: 1_763_600_000,
        id: '0199c0de-5f7a-7c3e-8a51-1d2f3a4b5c6d',
        minimumDiskSizeGb: 12,
        name: 'before-upgrade',
        status: 'READY',
      },
    ],
  ],
});
export type SnapshotList = Static<typeof SnapshotList>;

export const CreateSnapshotRequest = Type.Object(
  {
    instanceId: Type.String({
      description: 'The UUID of the instance, or its number as a string.',
    }),
    name: Type.String({
      description: '1 to 63 letters, digits, ".", "_" and "-"; the first a letter or digit.',
    }),
  },
  { examples: [{ instanceId: exampleUuid, name: 'before-upgrade' }] },
);
export type CreateSnapshotRequest = Static<typeof CreateSnapshotRequest>;

export const SnapshotParams = Type.Object({
  id: Type.String({ description: 'The UUID of the snapshot.' }),
});

const tags = ['Snapshots'];

const etag = {
  ETag: Type.String({
    description: 'Strong: it changes when the list does. Send it back as If-None-Match.',
  }),
};

const text = (description: string) => Type.Optional(Type.String({ description }));

/** All texts, as a query has them; the service says what is wrong with a value. */
export const ListSnapshotsQuery = Type.Object({
  status: text('Only those with this status: CREATING, READY or FAILED.'),
  name: text('Only the one with exactly this name.'),
  instance: text(
    'Only those of this instance: its number while it exists, or its UUID, also when it was deleted.',
  ),
  fits_gb: text('Only those that a restore fits on a disk of this many GB; a whole number from 1.'),
  limit: text(
    'At most so many, from 1 to 1000; the Link of the answer leads to the next ones. Left out: all.',
  ),
  after: text(
    'Where the page before ended, from its Link. It stays good when snapshots are deleted.',
  ),
});
export type ListSnapshotsQuery = Static<typeof ListSnapshotsQuery>;

const pageHeaders = {
  'X-Total-Count': Type.String({
    description: 'With any parameter: how many snapshots the filters let through, on all pages.',
  }),
  Link: Type.String({
    description: 'Where there are more: the next page, as <...>; rel="next" (RFC 8288).',
  }),
};

const preferenceApplied = {
  'Preference-Applied': Type.String({
    description: 'wait=N, when the answer was held back for a change (RFC 7240).',
  }),
};

/** The service encodes the list once for many answers, so the handler sends bytes. */
const EncodedList = Type.Unsafe<Uint8Array>(SnapshotList);

export const listSnapshotsOperation = {
  operationId: 'listSnapshots',
  summary: 'List every snapshot of the organization',
  description:
    'A JSON array of every snapshot of your organization, oldest first (time of creation, then id). Without parameters it is whole: there are no pages. A snapshot is in it from the moment its creation is accepted until its deletion is accepted. Parameters that are not known are ignored.',
  tags,
  querystring: ListSnapshotsQuery,
  headers: Type.Object({
    'if-none-match': Type.Optional(
      Type.String({ description: 'ETags that you hold: a 304 says that one of them still holds.' }),
    ),
    prefer: Type.Optional(
      Type.String({
        description:
          'wait=N (RFC 7240): answer when the list is another one than your If-None-Match names, or, without it, when it next changes; after N seconds (at most 60) in any case. Give up later than that. Where too many wait already, the answer comes at once and without Preference-Applied.',
        examples: ['wait=20'],
      }),
    ),
  }),
  response: {
    ...responses(200, EncodedList, {
      description: 'Every snapshot; [] when there are none.',
      headers: { ...etag, ...pageHeaders, ...preferenceApplied },
      errors: {
        400: 'invalid_request: a parameter has a wrong value; the message names it.',
      },
    }),
    304: {
      ...Type.Unsafe<undefined>(
        Type.Null({ description: 'The list is the one of your If-None-Match; there is no body.' }),
      ),
      headers: { ...etag, ...preferenceApplied },
    },
  },
};

export const createSnapshotOperation = {
  operationId: 'createSnapshot',
  summary: 'Take a snapshot of a running instance',
  description:
    'Accepts a copy of the disk of a RUNNING instance and answers at once; look at the list until the snapshot is READY. To restore it, create an instance with its name as "template".',
  tags,
  body: CreateSnapshotRequest,
  response: responses(202, messageLike('The snapshot "before-upgrade" is being created.'), {
    description: 'The snapshot is accepted: it is in the list, CREATING.',
    readsBody: true,
    errors: {
      400: 'invalid_request: malformed JSON, a field missing or of the wrong type, or a name with other characters.',
      404: noSuchInstance,
      409: 'conflict: the name is taken, by a snapshot or a template; the instance is not RUNNING; or a change of it is under way.',
    },
  }),
};

export const deleteSnapshotOperation = {
  operationId: 'deleteSnapshot',
  summary: 'Delete a snapshot',
  description: 'Deletes one snapshot, for good. Instances restored from it are whole without it.',
  tags,
  params: SnapshotParams,
  response: responses(204, Type.Null(), {
    description: 'The deletion is accepted: the snapshot is not in the list any more.',
    readsBody: true,
    errors: {
      404: 'not_found: no snapshot of your organization has this UUID.',
      409: 'conflict: the snapshot is still CREATING, or an instance is being restored from it.',
    },
  }),
};
