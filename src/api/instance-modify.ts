import { type Static, Type } from 'typebox';
import { engineErrors, InstanceParams, noSuchInstance, responses } from './common.ts';

const ports = (description: string, example: number) =>
  Type.Optional(Type.Array(Type.Integer(), { description, examples: [[example]] }));

const portFields = {
  add_ports: ports(
    'Ports to publish, from 1 to 65535 but 22, each once. The same number on the host leads to it in the instance. One that is published already does no harm.',
    8000,
  ),
  remove_ports: ports(
    'Ports to publish no longer; connections through them are cut. One that is not published does no harm.',
    9000,
  ),
};

/** Body of `PATCH /v1/instances/{id}/ports`. */
export const ChangePortsRequest = Type.Object(portFields, {
  examples: [{ add_ports: [8000], remove_ports: [9000] }],
});
export type ChangePortsRequest = Static<typeof ChangePortsRequest>;

/** Body of `POST /v1/instances/{id}/modify`. The catalog has the bounds. */
export const ModifyInstanceRequest = Type.Object(
  {
    cpu_cores: Type.Optional(Type.Integer({ minimum: 1, description: 'CPU cores.' })),
    disk_size_gb: Type.Optional(
      Type.Integer({ minimum: 1, description: 'Size of the disk in GB. It can only grow.' }),
    ),
    gpu_type: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: 'Type of GPU, in upper or lower case; it is echoed as you wrote it.',
      }),
    ),
    num_gpus: Type.Optional(Type.Integer({ minimum: 0, description: 'Number of GPUs.' })),
    mode: Type.Optional(
      Type.Union([Type.Literal('prototyping'), Type.Literal('production')], {
        description: 'How the instance is placed.',
      }),
    ),
    ephemeral_disk_gb: Type.Optional(
      Type.Integer({
        minimum: 0,
        description: 'Size of the disk that does not outlive the instance, in GB.',
      }),
    ),
    ...portFields,
  },
  { examples: [{ cpu_cores: 4, disk_size_gb: 20, add_ports: [8000] }] },
);
export type ModifyInstanceRequest = Static<typeof ModifyInstanceRequest>;

/** Answer of both. */
export const ModifiedInstance = Type.Object(
  {
    identifier: Type.String({ description: 'The number of the instance, as a string.' }),
    instance_name: Type.String({ description: 'Its name.' }),
    gpu_type: Type.Optional(
      Type.String({ description: 'As the caller wrote it; only when it was asked for.' }),
    ),
    mode: Type.Optional(Type.String({ description: 'Only when it was asked for.' })),
    num_gpus: Type.Optional(Type.Integer({ description: 'Only when it was asked for.' })),
    http_ports: Type.Array(Type.Integer(), {
      description: 'Every port that is published now, lowest first.',
    }),
  },
  { examples: [{ identifier: '0', instance_name: 'instance-0', http_ports: [8000] }] },
);
export type ModifiedInstance = Static<typeof ModifiedInstance>;

const answers = {
  description: 'All of it is done, and stays so.',
  readsBody: true,
  errors: {
    400: 'invalid_request: malformed JSON, a field of the wrong type, a size that the catalog does not have or a smaller disk, a port that cannot be one or is given twice, more than 32 ports, or ports where the host cannot publish any. The message names the field or port and what it may be.',
    404: noSuchInstance,
    409: 'conflict: the instance is neither RUNNING nor STOPPED, a port is in use on the host, or a quota does not allow it. The message names the status, the port or the quota. no_capacity: the host of the instance has no room for it; the message says what is short and how much is free.',
    ...engineErrors,
  },
};

const both = { tags: ['Instances'], params: InstanceParams };

export const modifyInstanceOperation = {
  ...both,
  operationId: 'modifyInstance',
  summary: 'Change the size or the published ports of an instance',
  description:
    'Changes a RUNNING or STOPPED instance, all of it or nothing. Fields that are left out stay as they are; the same request again changes nothing more.',
  body: ModifyInstanceRequest,
  response: responses(200, ModifiedInstance, answers),
};

export const changePortsOperation = {
  ...both,
  operationId: 'changePorts',
  summary: 'Publish ports of an instance, or take them back',
  description:
    'Publishes ports of a RUNNING or STOPPED instance on the host, while it runs, and takes others back, all of it or nothing. Inside, a server is reached when it listens on the address in $BERTH_ADDRESS.',
  body: ChangePortsRequest,
  response: responses(200, ModifiedInstance, answers),
};
