/** Three hosts on one machine: a bridge, and a network namespace with an address of its own for each. */

import { existsSync } from 'node:fs';
import { run, runWell } from '../support/run.ts';

export interface Host {
  /** `m1`, `m2`, ...: the member's name in the cluster. */
  readonly name: string;
  readonly namespace: string;
  readonly address: string;
  /** The machine's end of its cable: down, and the host is lost. */
  readonly cable: string;
}

/** Interface names have 15 characters at most. */
const stem = () => `bt${process.pid % 1_000_000}`;

/** The third number of an address block that no route of this machine uses. */
async function freeBlock(): Promise<number> {
  const routes = await runWell('ip', ['-4', 'route', 'show', 'table', 'all']);
  for (let number = process.pid % 200; number < 455; number += 1) {
    const block = number % 255;
    if (!routes.includes(`10.213.${block}.`)) return block;
  }
  throw new Error('There is no free address block for the cluster.');
}

export class HostNetwork {
  readonly bridge = `${stem()}br`;
  readonly hosts: readonly Host[];

  private constructor(block: number, count: number) {
    this.hosts = Array.from({ length: count }, (_none, index) => ({
      name: `m${index + 1}`,
      namespace: `${stem()}m${index + 1}`,
      address: `10.213.${block}.${index + 1}`,
      cable: `${stem()}v${index + 1}`,
    }));
  }

  static async open(count: number): Promise<HostNetwork> {
    const block = await freeBlock();
    const network = new HostNetwork(block, count);
    try {
      await network.#build(`10.213.${block}.254`);
    } catch (error) {
      await network.close();
      throw error;
    }
    return network;
  }

  async #build(ownAddress: string): Promise<void> {
    await ip('link', 'add', this.bridge, 'type', 'bridge');
    await ip('address', 'add', `${ownAddress}/24`, 'dev', this.bridge);
    await ip('link', 'set', this.bridge, 'up');
    for (const { namespace, address, cable } of this.hosts) {
      const inside = (...words: string[]) => ip('-n', namespace, ...words);
      await ip('netns', 'add', namespace);
      await ip('link', 'add', cable, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace);
      await ip('link', 'set', cable, 'master', this.bridge, 'up');
      await inside('address', 'add', `${address}/24`, 'dev', 'eth0');
      await inside('link', 'set', 'eth0', 'up');
      await inside('link', 'set', 'lo', 'up');
      await inside('route', 'add', 'default', 'via', ownAddress);
    }
  }

  /** Pulls the cable of a host, or puts it back. */
  async setCable(host: Host, state: 'up' | 'down'): Promise<void> {
    await ip('link', 'set', host.cable, state);
  }

  async close(): Promise<void> {
    for (const { namespace, cable } of this.hosts) {
      await run('ip', ['link', 'delete', cable]);
      await run('ip', ['netns', 'delete', namespace]);
    }
    if (existsSync(`/sys/class/net/${this.bridge}`))
      await run('ip', ['link', 'delete', this.bridge]);
  }
}

const ip = (...words: string[]): Promise<string> => runWell('ip', words);
