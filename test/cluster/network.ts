/** Three hosts on one machine: a bridge, and a network namespace with an address of its own for each. */

import { existsSync, readdirSync } from 'node:fs';
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
const stemOf = (pid: number) => `bt${pid % 1_000_000}`;

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
  /** What all its names begin with. */
  readonly stem = stemOf(process.pid);
  readonly bridge = `${this.stem}br`;
  readonly hosts: readonly Host[];

  readonly #ownAddress: string;

  private constructor(block: number, count: number) {
    this.#ownAddress = `10.213.${block}.254`;
    this.hosts = Array.from({ length: count }, (_none, index) => ({
      name: `m${index + 1}`,
      namespace: `${this.stem}m${index + 1}`,
      address: `10.213.${block}.${index + 1}`,
      cable: `${this.stem}v${index + 1}`,
    }));
  }

  /** Chooses its names and addresses; nothing is there yet. */
  static async plan(count: number): Promise<HostNetwork> {
    return new HostNetwork(await freeBlock(), count);
  }

  async build(): Promise<void> {
    const ownAddress = this.#ownAddress;
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
}

/** Everything whose name has this stem, as the kernel knows it; what has gone already is no error. */
export async function removeHosts(stem: string): Promise<void> {
  const isOurs = (name: string) =>
    name.startsWith(stem) && /^(?:br|[mv]\d+)$/.test(name.slice(stem.length));
  for (const name of readdirSync('/sys/class/net').filter(isOurs))
    await run('ip', ['link', 'delete', name]);
  const namespaces = existsSync('/run/netns') ? readdirSync('/run/netns') : [];
  for (const name of namespaces.filter(isOurs)) await run('ip', ['netns', 'delete', name]);
}

const ip = (...words: string[]): Promise<string> => runWell('ip', words);
