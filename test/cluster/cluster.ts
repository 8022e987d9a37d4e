/** A cluster of three Incus servers on this machine: what a platform team has on three. */

import { chmodSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { generate } from 'selfsigned';
import { startRemover } from '../support/remover.ts';
import { run } from '../support/run.ts';
import { Member } from './member.ts';
import { type Host, HostNetwork } from './network.ts';
import { FOLDER_PREFIX } from './removal.ts';

interface JoinToken {
  readonly addresses: readonly string[];
  readonly fingerprint: string;
  readonly secret: string;
  readonly expiresAt: string;
}

const REMOVAL = join(import.meta.dirname, 'removal.ts');

export const clusterPool = 'berth';
export const clusterNetwork = 'berthbr0';

export class Cluster {
  readonly folder: string;
  readonly members: readonly Member[];
  readonly #network: HostNetwork;
  readonly #remove: () => Promise<void>;

  private constructor(network: HostNetwork) {
    this.#network = network;
    this.folder = mkdtempSync(FOLDER_PREFIX);
    this.#remove = startRemover(REMOVAL, this.folder, network.stem);
    // The users of the guests have to pass through.
    chmodSync(this.folder, 0o711);
    this.members = network.hosts.map((host) => new Member(host, this.folder));
  }

  static async start(count = 3): Promise<Cluster> {
    const cluster = new Cluster(await HostNetwork.plan(count));
    try {
      await cluster.#network.build();
      await cluster.#form();
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  /** What the names of its interfaces and network namespaces begin with. */
  get stem(): string {
    return this.#network.stem;
  }

  get first(): Member {
    const [first] = this.members;
    if (!first) throw new Error('The cluster has no members.');
    return first;
  }

  member(name: string): Member {
    const found = this.members.find(({ host }) => host.name === name);
    if (!found) throw new Error(`The cluster has no member ${name}.`);
    return found;
  }

  async #form(): Promise<void> {
    await Promise.all(this.members.map((member) => member.start()));
    const { client, host } = this.first;
    await client.change('PATCH', '/1.0', {
      config: { 'core.https_address': `${host.address}:8443` },
    });
    await client.change('POST', '/1.0/storage-pools', {
      name: clusterPool,
      driver: 'btrfs',
      config: { size: '8GiB' },
    });
    await this.#useSimpleQuotas(this.first);
    const config = {
      'ipv4.address': '10.214.0.1/20',
      'ipv4.nat': 'true',
      'ipv6.address': 'none',
    };
    await client.change('POST', '/1.0/networks', { name: clusterNetwork, type: 'bridge', config });
    await client.change('PUT', '/1.0/cluster', { server_name: host.name, enabled: true });
    for (const member of this.members.slice(1)) await this.#join(member);
    const noted = { config: { 'user.berth.quotas': 'simple' } };
    await client.change('PATCH', `/1.0/storage-pools/${clusterPool}`, noted);
    await this.#trustClient();
  }

  async #join(member: Member): Promise<void> {
    const { name, address } = member.host;
    const answer = await this.first.client.call('POST', '/1.0/cluster/members', {
      server_name: name,
    });
    const { metadata } = JSON.parse(answer.body.toString()) as {
      metadata: { metadata: JoinToken };
    };
    const { addresses, fingerprint, secret, expiresAt } = metadata.metadata;
    const token = { server_name: name, fingerprint, addresses, secret, expires_at: expiresAt };
    await member.client.change('PUT', '/1.0/cluster', {
      server_name: name,
      enabled: true,
      cluster_address: `${this.first.host.address}:8443`,
      cluster_certificate: this.certificate,
      server_address: `${address}:8443`,
      cluster_token: Buffer.from(JSON.stringify(token)).toString('base64'),
      member_config: [
        { entity: 'storage-pool', name: clusterPool, key: 'size', value: '8GiB' },
        { entity: 'storage-pool', name: clusterPool, key: 'source', value: '' },
      ],
    });
    await this.#useSimpleQuotas(member);
  }

  /** In the daemon's own mounts: nobody else sees its pool. */
  async #useSimpleQuotas({ pid, folder }: Member): Promise<void> {
    const pool = join(folder, 'storage-pools', clusterPool);
    const words = ['-t', String(pid), '-m', 'btrfs', 'quota', 'enable', '--simple', pool];
    const { code, stderr } = await run('nsenter', words);
    if (code !== 0) throw new Error(`simple quotas: ${stderr}`);
  }

  get certificate(): string {
    const clustered = join(this.first.folder, 'cluster.crt');
    const files = readdirSync(this.first.folder);
    return readFileSync(
      files.includes('cluster.crt') ? clustered : join(this.first.folder, 'server.crt'),
      'utf8',
    );
  }

  /** The certificate that Berth shows, and the files with it. */
  async #trustClient(): Promise<void> {
    const pair = await generate([{ name: 'commonName', value: 'berth' }], { keySize: 2048 });
    writeFileSync(join(this.folder, 'client.crt'), pair.cert);
    writeFileSync(join(this.folder, 'client.key'), pair.private, { mode: 0o600 });
    writeFileSync(join(this.folder, 'server.crt'), this.certificate);
    const certificate = pair.cert.replace(/-----[A-Z ]+-----|\s/g, '');
    await this.first.client.change('POST', '/1.0/certificates', {
      type: 'client',
      name: 'berth',
      certificate,
    });
  }

  /** What the service is to be started with. */
  get settings(): Record<string, string> {
    return {
      BERTH_ENGINE: 'incus',
      BERTH_INCUS_URL: this.members.map(({ url }) => url).join(','),
      BERTH_INCUS_CERT: join(this.folder, 'client.crt'),
      BERTH_INCUS_KEY: join(this.folder, 'client.key'),
      BERTH_INCUS_SERVER_CERT: join(this.folder, 'server.crt'),
      BERTH_INCUS_POOL: clusterPool,
      BERTH_INCUS_NETWORK: clusterNetwork,
    };
  }

  async cutOff(host: Host): Promise<void> {
    await this.#network.setCable(host, 'down');
  }

  async connect(host: Host): Promise<void> {
    await this.#network.setCable(host, 'up');
  }

  async close(): Promise<void> {
    for (const { client } of this.members) client.close();
    await this.#remove();
  }
}
