import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  changePortsOperation,
  type ModifiedInstance as ModifiedInstanceView,
  type ModifyInstanceRequest,
  modifyInstanceOperation,
} from '../../api/instance-modify.ts';
import type {
  InstanceChange,
  InstanceModifyService,
  ModifiedInstance,
} from '../../services/instance-modify.ts';
import { actorOf } from '../auth.ts';

/** Change sizes and published ports of an instance. */
export const instanceModifyRoutes =
  (instances: InstanceModifyService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.post(
      '/v1/instances/:id/modify',
      {
        config: { audit: 'instance.modify', scope: 'instances:write' },
        schema: modifyInstanceOperation,
      },
      async (request) => {
        const { params, body } = request;
        const modified = await instances.modify(actorOf(request), params.id, toChange(body));
        return modifiedView(modified, body);
      },
    );

    app.patch(
      '/v1/instances/:id/ports',
      {
        config: { audit: 'instance.ports', scope: 'instances:write' },
        schema: changePortsOperation,
      },
      async (request) => {
        const { params, body } = request;
        const change = { addPorts: body.add_ports ?? [], removePorts: body.remove_ports ?? [] };
        return modifiedView(await instances.changePorts(actorOf(request), params.id, change), {});
      },
    );
  };

function toChange(body: ModifyInstanceRequest): InstanceChange {
  return {
    ...(body.cpu_cores !== undefined && { cpuCores: body.cpu_cores }),
    ...(body.disk_size_gb !== undefined && { diskSizeGb: body.disk_size_gb }),
    ...(body.ephemeral_disk_gb !== undefined && { ephemeralDiskGb: body.ephemeral_disk_gb }),
    ...(body.gpu_type !== undefined && { gpuType: body.gpu_type }),
    ...(body.num_gpus !== undefined && { numGpus: body.num_gpus }),
    ...(body.mode !== undefined && { mode: body.mode }),
    addPorts: body.add_ports ?? [],
    removePorts: body.remove_ports ?? [],
  };
}

/** Of the optional fields, those that were asked for. */
function modifiedView(
  { row, httpPorts }: ModifiedInstance,
  asked: ModifyInstanceRequest,
): ModifiedInstanceView {
  return {
    identifier: String(row.identifier),
    instance_name: row.name,
    ...(asked.gpu_type !== undefined && { gpu_type: row.gpu_type }),
    ...(asked.mode !== undefined && { mode: row.mode }),
    ...(asked.num_gpus !== undefined && { num_gpus: row.num_gpus }),
    http_ports: [...httpPorts],
  };
}
