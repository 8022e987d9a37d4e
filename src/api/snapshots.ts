import { type Static, Type } from 'typebox';

export const Snapshot = Type.Object({
  createdAt: Type.Integer({
    description: 'When it was asked for; seconds since the Unix epoch, UTC.',
  }),
  id: Type.String(),
  minimumDiskSizeGb: Type.Integer({
    description: 'The smallest disk, in GB, that a restore accepts.',
  }),
  name: Type.String(),
  status: Type.Union([Type.Literal('CREATING'), Type.Literal('READY'), Type.Literal('FAILED')]),
});
export type Snapshot = Static<typeof Snapshot>;

export const SnapshotList = Type.Array(Snapshot);
export type SnapshotList = Static<typeof SnapshotList>;

export const CreateSnapshotRequest = Type.Object({
  instanceId: Type.String({ description: 'The UUID of the instance, or its number.' }),
  name: Type.String({
    description: '1 to 63 letters, digits, ".", "_" and "-"; the first a letter or digit.',
  }),
});
export type CreateSnapshotRequest = Static<typeof CreateSnapshotRequest>;

export const SnapshotParams = Type.Object({
  id: Type.String({ description: 'The UUID of the snapshot.' }),
});
