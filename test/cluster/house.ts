/** A service whose instances are on the three members of a cluster. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { IncusClient } from '../../src/engines/incus/client.ts';
import type { NewInstance } from '../support/client.ts';
import { House, type Machine, newTenantToken } from '../support/house.ts';
import { skipIncus } from '../support/incus.ts';
import { importImage } from '../support/incus-contents.ts';
import { run } from '../support/run.ts';
import { Service } from '../support/service.ts';
import { sshWell } from '../support/ssh.ts';
import { eventually } from '../support/waiting.ts';
import { Cluster, clusterPool } from './cluster.ts';

/** Made for `{ skip }`: why there can be no cluster here; false where there can. */
export async function reasonToSkip(): Promise<string | false> {
  if (skipIncus !== false) return skipIncus;
  const { code, stderr } = await run('unshare', ['--net', 'ip', 'link', 'add', 'type', 'veth']);
  return code !== 0 && `this host gives no networks of their own to three hosts: ${stderr.trim()}`;
}

const template = (key: string, hosts: string) => `
  - key: ${key}
    display_name: ${key}
    extended_description: The default image.
    source: base
    ${hosts}
    default: ${hosts === ''}
    default_specs: { cores: 1, gpu_type: cpu, num_gpus: 1, storage_gb: 10 }
`;

const catalog = `
gpu_types:
  - name: cpu
    display_name: CPU only
    vram_gb: 0
    counts: [1]
    attach: none
    modes:
      prototyping:
        vcpus: [1]
        ram_per_vcpu_gib: 1
        storage_gb: { min: 10, max: 20 }
        price_per_hour: { 1: 0 }
prices: { additional_vcpus: 0, disk_gb: 0, ephemeral_disk_gb: 0 }
templates:
${template('base', '')}${template('first', 'hosts: [m1]')}${template('third', 'hosts: [m3]')}`;

const OPEN_MS = 40_000;

interface Listed {
  readonly name: string;
  readonly location: string;
}

export class ClusterHouse extends House {
  readonly cluster: Cluster;

  private constructor(cluster: Cluster, service: Service, keyFolder: string, token: string) {
    super(service, keyFolder, false, token);
    this.cluster = cluster;
  }

  static async open(): Promise<ClusterHouse> {
    const cluster = await Cluster.start();
    const folder = mkdtempSync(join(tmpdir(), 'berth-cluster-house-'));
    let service: Service | undefined;
    try {
      await importImage(cluster.first.client, clusterPool, () => {});
      const catalogFile = join(folder, 'catalog.yaml');
      writeFileSync(catalogFile, catalog);
      const environment = {
        ...cluster.settings,
        BERTH_INCUS_PROJECT: 'default',
        BERTH_CATALOG: catalogFile,
        // Their disks are small and their host is one: what they hold is no matter here.
        BERTH_OVERCOMMIT: 'cpu=100,memory=100,disk=100',
      };
      service = await Service.prepare({ environment });
      await service.start();
      const token = await newTenantToken(service, 'acme');
      return new ClusterHouse(cluster, service, folder, token);
    } catch (error) {
      console.error(await service?.logTail());
      await service?.dispose();
      await cluster.close();
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  /** After a change of leader the cluster has its members back one by one, and lets nothing be put on them before. */
  override async machine(wanted: Partial<NewInstance> = {}): Promise<Machine> {
    const make = () =>
      super.machine(wanted).catch((error: Error) => {
        if (/No host that .* can be reached now/.test(error.message)) return undefined;
        throw error;
      });
    return eventually('a host that is open', OPEN_MS, make, 500);
  }

  /** Everything that the cluster has, as it sees it itself. */
  async listed(): Promise<readonly Listed[]> {
    const query = { recursion: '1' };
    return this.#client.get<Listed[]>('/1.0/instances', { query, timeoutMs: 30_000 });
  }

  get #client(): IncusClient {
    const member = this.cluster.members.find(({ isRunning }) => isRunning);
    assert.ok(member, 'a member runs');
    return member.client;
  }

  /** The member that has an instance. The list would wait for a member that was lost just now. */
  async hostOf({ uuid }: Pick<Machine, 'uuid'>): Promise<string> {
    const path = `/1.0/instances/berth-i-${uuid}`;
    return (await this.#client.get<Listed>(path, { timeoutMs: 30_000 })).location;
  }

  override async dispose(): Promise<void> {
    await this.service.dispose();
    await this.cluster.close();
    rmSync(this.keyFolder, { recursive: true, force: true });
  }
}

/** When the guest's first process began: another one, and the guest was started anew. */
export async function bootOf({ login }: Machine): Promise<string> {
  const boot = await sshWell(login, 'cut -d" " -f22 /proc/1/stat');
  assert.match(boot, /^\d+\n$/);
  return boot;
}
