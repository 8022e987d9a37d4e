/** How many processors a guest may have of its host. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { requireProcessors } from '../../src/engines/incus/creating.ts';
import type { Parts } from '../../src/engines/incus/parts.ts';

const room = { online: true, memoryGb: 64, diskGb: 64, gpus: [] };
const partsOf = (...hosts: [name: string, cpuCores: number][]) =>
  ({
    overview: { last: { hosts: hosts.map(([name, cpuCores]) => ({ ...room, name, cpuCores })) } },
  }) as unknown as Pick<Parts, 'overview'>;
const machine = (cpuCores: number, host?: string) => ({
  ...{ ref: 'one', hostname: 'one', memoryGb: 1, diskSizeGb: 10, sshPort: 22000, httpPorts: [] },
  ...{ orgId: 'org', gpus: [], cpuCores, host },
});
const tooMany = (most: number) => ({
  kind: 'no_capacity',
  message: new RegExp(`its host, and that has ${most}, not 4`),
});

test('of a virtual machine more than the host has are refused, and named', () => {
  const ask = (parts: Pick<Parts, 'overview'>, cpuCores: number, host?: string) => () =>
    requireProcessors(parts, machine(cpuCores, host), 'virtual-machine');
  const alone = partsOf(['none', 2]);
  assert.doesNotThrow(ask(alone, 2));
  assert.throws(ask(alone, 4), tooMany(2));
  const cluster = partsOf(['m1', 2], ['m2', 8]);
  assert.throws(ask(cluster, 4, 'm1'), tooMany(2));
  assert.doesNotThrow(ask(cluster, 4, 'm2'));
});

test('what a host has is not guessed', () => {
  for (const parts of [partsOf(), partsOf(['m1', 0]), partsOf(['m1', 2], ['m2', 2])])
    assert.doesNotThrow(() => requireProcessors(parts, machine(4), 'virtual-machine'));
});

test('a container may have more', () => {
  assert.doesNotThrow(() => requireProcessors(partsOf(['none', 2]), machine(4), 'container'));
});
