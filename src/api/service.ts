import { type Static, Type } from 'typebox';

export const Readiness = Type.Object({
  status: Type.Literal('ready'),
  engine: Type.String(),
  capabilities: Type.Object({
    snapshotPauses: Type.Boolean(),
    enforcesCpu: Type.Boolean(),
    enforcesMemory: Type.Boolean(),
    enforcesDiskSize: Type.Boolean(),
    ownNetwork: Type.Boolean(),
    shells: Type.Boolean(),
  }),
  notices: Type.Array(Type.String(), {
    description: 'What is missing or weaker than it could be, and how to mend it.',
  }),
});
export type Readiness = Static<typeof Readiness>;
