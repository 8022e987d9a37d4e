import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  type CreateInstanceRequest,
  type CreateInstanceResponse,
  createInstanceOperation,
  deleteInstanceOperation,
  getInstanceOperation,
  type Instance,
  listInstancesOperation,
  startInstanceOperation,
  stopInstanceOperation,
} from '../../api/instances.ts';
import type {
  ConfirmedInstance,
  InstanceService,
  InstanceView,
  NewInstance,
} from '../../services/instances.ts';
import { actorOf } from '../auth.ts';
import { whenUndelivered } from '../delivery.ts';
import { keepWithWork } from '../idempotency.ts';

/** Create, list, show, start, stop and delete instances. */
export const instanceRoutes =
  (instances: InstanceService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.post(
      '/v1/instances/create',
      {
        config: { audit: 'instance.create', scope: 'instances:write' },
        schema: createInstanceOperation,
      },
      async (request, reply) => {
        reply.code(201).header('cache-control', 'no-store');
        const onConfirm = keepWithWork(request, reply, createdView);
        const created = await instances.create(actorOf(request), toInput(request.body), onConfirm);
        whenUndelivered(reply, created.takeBack);
        return createdView(created);
      },
    );

    app.get(
      '/v1/instances/list',
      { config: { scope: 'instances:read' }, schema: listInstancesOperation },
      async (request) => {
        const views = await instances.list(actorOf(request));
        return Object.fromEntries(
          views.map((view) => [String(view.row.identifier), instanceView(view)]),
        );
      },
    );

    app.get(
      '/v1/instances/:id',
      { config: { scope: 'instances:read' }, schema: getInstanceOperation },
      async (request) => instanceView(await instances.get(actorOf(request), request.params.id)),
    );

    app.post(
      '/v1/instances/:id/start',
      {
        config: { audit: 'instance.start', scope: 'instances:write' },
        schema: startInstanceOperation,
      },
      async (request) => ({ message: await instances.start(actorOf(request), request.params.id) }),
    );

    app.post(
      '/v1/instances/:id/stop',
      {
        config: { audit: 'instance.stop', scope: 'instances:write' },
        schema: stopInstanceOperation,
      },
      async (request) => ({ message: await instances.stop(actorOf(request), request.params.id) }),
    );

    app.post(
      '/v1/instances/:id/delete',
      {
        config: { audit: 'instance.delete', scope: 'instances:write', frees: true },
        schema: deleteInstanceOperation,
      },
      async (request) => ({ message: await instances.delete(actorOf(request), request.params.id) }),
    );
  };

const createdView = (created: ConfirmedInstance): CreateInstanceResponse => ({
  uuid: created.uuid,
  identifier: created.identifier,
  key: created.privateKey,
});

function toInput(body: CreateInstanceRequest): NewInstance {
  return {
    cpuCores: body.cpu_cores,
    diskSizeGb: body.disk_size_gb,
    ephemeralDiskGb: body.ephemeral_disk_gb ?? 0,
    gpuType: body.gpu_type,
    numGpus: body.num_gpus,
    mode: body.mode,
    template: body.template,
    ...(body.public_key === undefined ? {} : { publicKey: body.public_key }),
  };
}

/** Field by field: a new column never leaks. Optional fields are left out, never empty. */
function instanceView({ row, publicKeys, httpPorts }: InstanceView): Instance {
  const since = new Date(row.status_since).toISOString();
  return {
    id: String(row.identifier),
    uuid: row.id,
    name: row.name,
    status: row.status,
    createdAt: new Date(row.created_at).toISOString(),
    ...(row.ip === null ? {} : { ip: row.ip }),
    ...(row.port === null ? {} : { port: row.port }),
    cpuCores: String(row.cpu_cores),
    numGpus: String(row.num_gpus),
    memory: String(row.memory_gb),
    storage: row.disk_size_gb,
    ephemeralDiskGB: row.ephemeral_disk_gb,
    gpuType: row.gpu_type,
    mode: row.mode,
    template: row.template,
    httpPorts: [...httpPorts],
    sshPublicKeys: [...publicKeys],
    k8s: false,
    promoted: false,
    ...(row.status === 'PROVISIONING' ? { provisioningTime: since } : {}),
    ...(row.status === 'RESTORING' ? { restoringTime: since } : {}),
    ...(row.failure === null ? {} : { failure: row.failure }),
  };
}
