import type { GpuDevice, HostCapacity, MachineSpec } from '../engines/engine.ts';
import { listPorts } from '../store/instance-ports.ts';
import { listGpus } from '../store/placing.ts';
import type { GpuAllocationRow, InstanceRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';

/** What an instance has besides its sizes. */
export interface Attachments {
  readonly httpPorts: readonly number[];
  readonly gpus: readonly GpuDevice[];
}

/** An instance as the engine is to make it; `hosts` are those that the engine has. */
export function machineOf(
  instance: InstanceRow,
  { httpPorts, gpus }: Attachments,
  hosts: readonly Pick<HostCapacity, 'name'>[],
): MachineSpec {
  return {
    ref: instance.engine_ref,
    hostname: instance.name,
    cpuCores: instance.cpu_cores,
    memoryGb: instance.memory_gb,
    diskSizeGb: instance.disk_size_gb,
    sshPort: instance.ssh_port,
    httpPorts,
    orgId: instance.org_id,
    host: hosts.length > 1 ? (instance.host ?? undefined) : undefined,
    gpus,
  };
}

export const gpuOf = ({ attach, pci, mig_uuid }: GpuAllocationRow): GpuDevice => ({
  attach,
  pci,
  ...(mig_uuid !== '' && { migUuid: mig_uuid }),
});

/** The same with its published ports and GPUs as the database has them now. */
export async function loadMachine(
  { store, engine }: Pick<ServiceContext, 'store' | 'engine'>,
  instance: InstanceRow,
): Promise<MachineSpec> {
  const { db } = store;
  const httpPorts = await listPorts(db, instance.org_id, instance.id);
  const gpus = (await listGpus(db, instance.org_id, instance.id)).map(gpuOf);
  return machineOf(instance, { httpPorts, gpus }, engine.capabilities.hosts);
}
