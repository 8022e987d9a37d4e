import { type Static, Type } from 'typebox';
import {
  examplePrivateKey,
  examplePublicKey,
  exampleUuid,
  InstanceParams,
  messageLike,
  noStore,
  noSuchInstance,
  responses,
} from './common.ts';

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
  {
    description:
      'What the instance is doing. A new one goes PROVISIONING (RESTORING from a snapshot), STARTING, RUNNING. UNKNOWN: its creation failed for good, and "failure" says why.',
  },
);

/** Body of `POST /v1/instances/create`. The catalog has the upper bounds, so that they can differ from host to host. */
export const CreateInstanceRequest = Type.Object(
  {
    cpu_cores: Type.Integer({
      minimum: 1,
      description: 'CPU cores; GET /v1/specs lists the choices.',
    }),
    disk_size_gb: Type.Integer({
      minimum: 1,
      description:
        'Size of the disk in GB, in the range of GET /v1/specs; at least the minimum of the snapshot that is restored.',
    }),
    gpu_type: Type.String({
      minLength: 1,
      maxLength: 64,
      description:
        'Type of GPU of the catalog, in upper or lower case; it is echoed as you wrote it. "cpu" is none.',
    }),
    mode: Type.Union([Type.Literal('prototyping'), Type.Literal('production')], {
      description: 'How the instance is placed.',
    }),
    num_gpus: Type.Integer({
      minimum: 0,
      description: 'Number of GPUs. For the type "cpu" it is 1, which attaches nothing.',
    }),
    template: Type.String({
      minLength: 1,
      maxLength: 128,
      description:
        'A template key such as "base", its display name, or the name of a READY snapshot, which is restored.',
    }),
    public_key: Type.Optional(
      Type.String({
        description:
          'One public key in OpenSSH format that may log in. Left out: a key pair is generated.',
        examples: [examplePublicKey],
      }),
    ),
    ephemeral_disk_gb: Type.Optional(
      Type.Integer({
        minimum: 0,
        description:
          'Size of a disk that does not outlive the instance, in GB, in the range of GET /v1/specs. Default: 0.',
      }),
    ),
  },
  {
    examples: [
      {
        cpu_cores: 2,
        disk_size_gb: 10,
        gpu_type: 'cpu',
        mode: 'prototyping',
        num_gpus: 1,
        template: 'base',
      },
    ],
  },
);
export type CreateInstanceRequest = Static<typeof CreateInstanceRequest>;

export const CreateInstanceResponse = Type.Object(
  {
    uuid: Type.String({ description: 'The UUID of the new instance.' }),
    identifier: Type.Integer({
      description:
        'Its number in your organization: they count up from 0, and none is reused while an instance holds it.',
    }),
    key: Type.String({
      description:
        'The generated private key in OpenSSH format, shown this once; "" when the caller sent a public key.',
    }),
  },
  { examples: [{ uuid: exampleUuid, identifier: 0, key: examplePrivateKey }] },
);
export type CreateInstanceResponse = Static<typeof CreateInstanceResponse>;

const exampleInstance = {
  id: '0',
  uuid: exampleUuid,
  name: 'brave-otter',
  status: 'RUNNING',
  createdAt: '2025-11-20T00:53:20.000Z',
  ip: '127.0.0.1',
  port: 22_000,
  cpuCores: '2',
  numGpus: '1',
  memory: '8',
  storage: 10,
  ephemeralDiskGB: 0,
  gpuType: 'cpu',
  mode: 'prototyping',
  template: 'base',
  httpPorts: [],
  sshPublicKeys: [examplePublicKey],
  k8s: false,
  promoted: false,
};

/** An instance as clients see it. `cpuCores`, `numGpus` and `memory` are strings by contract. */
export const Instance = Type.Object(
  {
    id: Type.String({ description: 'The number of the instance, as a string.' }),
    uuid: Type.String({ description: 'Its UUID, which no other instance ever has.' }),
    name: Type.String({ description: 'A name for people, given by the service.' }),
    status: InstanceStatus,
    createdAt: Type.String({ description: 'When it was asked for, RFC 3339.' }),
    ip: Type.Optional(
      Type.String({ description: 'Where its SSH answers; left out until there is an address.' }),
    ),
    port: Type.Optional(Type.Integer({ description: 'The SSH port.' })),
    cpuCores: Type.String({ description: 'CPU cores, digits only.' }),
    numGpus: Type.String({ description: 'Number of GPUs, digits only.' }),
    memory: Type.String({ description: 'GB, digits only.' }),
    storage: Type.Integer({ description: 'Size of the disk in GB.' }),
    ephemeralDiskGB: Type.Integer({ description: 'Size of the ephemeral disk in GB.' }),
    gpuType: Type.String({ description: 'As the caller wrote it.' }),
    mode: Type.String({ description: 'prototyping or production.' }),
    template: Type.String({ description: 'The template, or the name of the snapshot restored.' }),
    httpPorts: Type.Array(Type.Integer(), {
      description: 'Ports published on the host, lowest first.',
    }),
    sshPublicKeys: Type.Array(Type.String(), {
      description: 'Every key line that the service added, exactly as given, oldest first.',
    }),
    k8s: Type.Boolean({ description: 'Always false.' }),
    promoted: Type.Boolean({ description: 'Always false.' }),
    provisioningTime: Type.Optional(
      Type.String({ description: 'Since when, RFC 3339; only while PROVISIONING.' }),
    ),
    restoringTime: Type.Optional(
      Type.String({ description: 'Since when, RFC 3339; only while RESTORING.' }),
    ),
    failure: Type.Optional(Type.String({ description: 'Why the last change failed for good.' })),
  },
  { examples: [exampleInstance] },
);
export type Instance = Static<typeof Instance>;

/** `GET /v1/instances/list`: the identifier as a string -> instance. */
export const InstanceMap = Type.Record(Type.String(), Instance, {
  examples: [{ '0': exampleInstance }],
});
export type InstanceMap = Static<typeof InstanceMap>;

const tags = ['Instances'];

export const createInstanceOperation = {
  operationId: 'createInstance',
  summary: 'Create an instance, or restore a snapshot as one',
  description:
    'Accepts a new instance and answers at once; look at it until its status is RUNNING. With the name of a READY snapshot as "template" the new disk has the content of the snapshot, the authorized keys in it included; host keys and machine id are its own.',
  tags,
  body: CreateInstanceRequest,
  response: responses(201, CreateInstanceResponse, {
    description: 'The instance is accepted: it is PROVISIONING, or RESTORING.',
    headers: noStore,
    readsBody: true,
    errors: {
      400: 'invalid_request: malformed JSON, a field missing, of the wrong type or out of bounds, an unknown template, a refused public key, or a disk smaller than the minimum of the snapshot. The message names the field and what it may be.',
      409: 'conflict: the snapshot is not READY, a quota does not allow it, or every SSH port is in use. no_capacity: no host has room for it; the message says what is short and how much is free.',
    },
  }),
};

export const listInstancesOperation = {
  operationId: 'listInstances',
  summary: 'List instances',
  description:
    'Every instance of your organization, by its number as a string. "?update_ips=true" is accepted and changes nothing: addresses are always those of now.',
  tags,
  response: responses(200, InstanceMap, {
    description: 'The instances; {} when there are none.',
  }),
};

const one = { tags, params: InstanceParams };

export const getInstanceOperation = {
  ...one,
  operationId: 'getInstance',
  summary: 'Show an instance',
  description: 'One instance of your organization, by number or UUID.',
  response: responses(200, Instance, {
    description: 'The instance as it is now.',
    errors: { 404: noSuchInstance },
  }),
};

const underWay = 'conflict: a change of the instance is under way; the message names its status.';

export const startInstanceOperation = {
  ...one,
  operationId: 'startInstance',
  summary: 'Start an instance',
  description:
    'Starts a STOPPED instance. It goes STARTING, then RUNNING, with the address that the instance then shows. Nothing happens to one that runs already.',
  response: responses(200, messageLike('Instance 0 is being started.'), {
    description: 'The start is accepted, or the instance runs already.',
    readsBody: true,
    errors: { 404: noSuchInstance, 409: underWay },
  }),
};

export const stopInstanceOperation = {
  ...one,
  operationId: 'stopInstance',
  summary: 'Stop an instance',
  description:
    'Ends every process of a RUNNING instance. It goes STOPPING, then STOPPED; its disk stays. Nothing happens to one that is stopped already.',
  response: responses(200, messageLike('Instance 0 is being stopped.'), {
    description: 'The stop is accepted, or the instance is stopped already.',
    readsBody: true,
    errors: { 404: noSuchInstance, 409: underWay },
  }),
};

export const deleteInstanceOperation = {
  ...one,
  operationId: 'deleteInstance',
  summary: 'Delete an instance and its disk',
  description:
    'Deletes a RUNNING, STOPPED or UNKNOWN instance and its disk, for good. Its snapshots stay whole.',
  response: responses(200, messageLike('Instance 0 is being deleted.'), {
    description: 'The deletion is accepted; the instance is gone when a look at it is a 404.',
    readsBody: true,
    errors: { 404: noSuchInstance, 409: underWay },
  }),
};
