import { type Static, Type } from 'typebox';

export const InstanceStatus = Type.Union(
  [
    Type.Literal('PROVISIONING'),
    Type.Literal('STARTING'),
    Type.Literal('RUNNING'),
    Type.Literal('STOPPING'),
    Type.Literal('STOPPED'),
    Type.Literal('SNAPPING'),
    Type.Literal('RESTORING'),
    Type.Literal('MODIFYING'),
    Type.Literal('UNKNOWN'),
  ],
  { description: 'What the instance is doing.' },
);

/** Body of `POST /v1/instances/create`. */
export const CreateInstanceRequest = Type.Object({
  cpu_cores: Type.Integer({ minimum: 1 }),
  disk_size_gb: Type.Integer({ minimum: 1 }),
  gpu_type: Type.String({ minLength: 1, maxLength: 64 }),
  mode: Type.Union([Type.Literal('prototyping'), Type.Literal('production')]),
  num_gpus: Type.Integer({ minimum: 0 }),
  template: Type.String({
    minLength: 1,
    maxLength: 128,
    description: 'A template key, its display name, or the name of a READY snapshot.',
  }),
  public_key: Type.Optional(Type.String({ description: 'Left out: a key pair is generated.' })),
  ephemeral_disk_gb: Type.Optional(Type.Integer({ minimum: 0 })),
});
export type CreateInstanceRequest = Static<typeof CreateInstanceRequest>;

export const CreateInstanceResponse = Type.Object({
  uuid: Type.String(),
  identifier: Type.Integer(),
  key: Type.String({
    description: 'The generated private key, shown once; "" when the caller sent a public key.',
  }),
});
export type CreateInstanceResponse = Static<typeof CreateInstanceResponse>;

/** An instance as clients see it. `cpuCores`, `numGpus` and `memory` are strings by contract. */
export const Instance = Type.Object({
  id: Type.String(),
  uuid: Type.String(),
  name: Type.String(),
  status: InstanceStatus,
  createdAt: Type.String({ description: 'RFC 3339.' }),
  ip: Type.Optional(Type.String()),
  port: Type.Optional(Type.Integer({ description: 'The SSH port.' })),
  cpuCores: Type.String(),
  numGpus: Type.String(),
  memory: Type.String({ description: 'GB, digits only.' }),
  storage: Type.Integer({ description: 'GB.' }),
  ephemeralDiskGB: Type.Integer(),
  gpuType: Type.String(),
  mode: Type.String(),
  template: Type.String(),
  httpPorts: Type.Array(Type.Integer()),
  sshPublicKeys: Type.Array(Type.String()),
  k8s: Type.Boolean(),
  promoted: Type.Boolean(),
  provisioningTime: Type.Optional(
    Type.String({ description: 'RFC 3339; only while provisioning.' }),
  ),
  restoringTime: Type.Optional(Type.String({ description: 'RFC 3339; only while restoring.' })),
  failure: Type.Optional(Type.String({ description: 'Why the last change failed for good.' })),
});
export type Instance = Static<typeof Instance>;

/** `GET /v1/instances/list`: the identifier as a string -> instance. */
export const InstanceMap = Type.Record(Type.String(), Instance);
export type InstanceMap = Static<typeof InstanceMap>;
