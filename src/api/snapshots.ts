import { type Static, Type } from 'typebox';
import { exampleUuid, Message, noSuchInstance, responses } from './common.ts';

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

/** The service encodes the list once for many answers, so the handler sends bytes. */
const EncodedList = Type.Unsafe<Uint8Array>(SnapshotList);

export const listSnapshotsOperation = {
  operationId: 'listSnapshots',
  summary: 'List every snapshot of the organization',
  description:
    'A JSON array of every snapshot of your organization, oldest first (time of creation, then id). It is whole: there are no pages. A snapshot is in it from the moment its creation is accepted until its deletion is accepted.',
  tags,
  headers: Type.Object({
    'if-none-match': Type.Optional(
      Type.String({ description: 'ETags that you hold: a 304 says that one of them still holds.' }),
    ),
  }),
  response: {
    ...responses(200, EncodedList, {
      description: 'Every snapshot; [] when there are none.',
      headers: etag,
    }),
    304: {
      ...Type.Null({ description: 'The list is the one of your If-None-Match; there is no body.' }),
      headers: etag,
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
  response: responses(202, Message, {
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
