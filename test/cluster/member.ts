/** One incusd that believes it is alone on its host. */

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { IncusClient } from '../../src/engines/incus/client.ts';
import { endProcess } from '../support/processes.ts';
import { eventually } from '../support/waiting.ts';
import type { Host } from './network.ts';

/**
 * Mounts of its own, with the /sys of its network namespace and the control groups of the machine in it
 * (`ip netns exec` would hide these).
 */
const script = `
set -e
mount --make-rprivate /
mkdir -p "$INCUS_DIR/cgroups"
mount --rbind /sys/fs/cgroup "$INCUS_DIR/cgroups"
umount -l /sys
mount -t sysfs sysfs /sys
mount --rbind "$INCUS_DIR/cgroups" /sys/fs/cgroup
umount -l "$INCUS_DIR/cgroups"
exec incusd --group incus-admin
`;

export class Member {
  readonly host: Host;
  readonly folder: string;
  readonly client: IncusClient;
  #pid: number | undefined;

  constructor(host: Host, parent: string) {
    this.host = host;
    this.folder = join(parent, host.name);
    mkdirSync(this.folder, { recursive: true });
    this.client = new IncusClient({
      endpoints: [`unix:${this.socket}`],
      tls: undefined,
      project: 'default',
    });
  }

  get socket(): string {
    return join(this.folder, 'unix.socket');
  }

  /** Where other members, and Berth, reach it. */
  get url(): string {
    return `https://${this.host.address}:8443`;
  }

  get log(): string {
    return readFileSync(`${this.folder}.log`, 'utf8');
  }

  async start(): Promise<void> {
    const log = openSync(`${this.folder}.log`, 'a');
    const inside = [`--net=/run/netns/${this.host.namespace}`, 'unshare', '-m', 'sh', '-c', script];
    const path = `/usr/libexec/incus:/usr/lib/incus:${process.env.PATH}`;
    const child = spawn('nsenter', inside, {
      env: { ...process.env, INCUS_DIR: this.folder, PATH: path },
      stdio: ['ignore', log, log],
      detached: true,
    });
    child.unref();
    this.#pid = child.pid;
    await eventually(`an answer of ${this.host.name}`, 30_000, () => this.answers(), 100);
  }

  async answers(): Promise<true | undefined> {
    const root = await this.client.get('/1.0', { timeoutMs: 2000 }).catch(() => undefined);
    return root === undefined ? undefined : true;
  }

  /** Of the daemon; it sees mounts of its own. */
  get pid(): number {
    if (this.#pid === undefined) throw new Error(`${this.host.name} does not run.`);
    return this.#pid;
  }

  get isRunning(): boolean {
    return this.#pid !== undefined;
  }

  /** The daemon dies; its guests run on. */
  async kill(): Promise<void> {
    if (this.#pid === undefined) return;
    endProcess(this.#pid);
    const status = `/proc/${this.#pid}/status`;
    await eventually(`the end of ${this.host.name}`, 10_000, () =>
      existsSync(status) && !readFileSync(status, 'utf8').includes('State:\tZ') ? undefined : true,
    );
    this.#pid = undefined;
  }
}
