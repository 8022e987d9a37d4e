import type { MachineSpec } from '../engines/engine.ts';
import type { Db } from '../store/database.ts';
import { listPorts } from '../store/instance-ports.ts';
import type { InstanceRow } from '../store/schema.ts';

/** An instance as the engine is to make it. */
export function machineOf(instance: InstanceRow, httpPorts: readonly number[]): MachineSpec {
  return {
    ref: instance.engine_ref,
    hostname: instance.name,
    cpuCores: instance.cpu_cores,
    memoryGb: instance.memory_gb,
    diskSizeGb: instance.disk_size_gb,
    sshPort: instance.ssh_port,
    httpPorts,
    orgId: instance.org_id,
    host: undefined,
    gpus: [],
  };
}

/** The same with its published ports as the database has them now. */
export async function loadMachine(db: Db, instance: InstanceRow): Promise<MachineSpec> {
  return machineOf(instance, await listPorts(db, instance.org_id, instance.id));
}
