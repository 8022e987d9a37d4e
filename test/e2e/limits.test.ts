/** Sizes as the kernel enforces them, from the wire down: over a change, a crash of the service and a deletion. */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { SERVICE_GROUP } from '../../src/engines/sandbox/cgroup-trees.ts';
import { modified } from '../contract/answers.ts';
import { cpuLimit, groupOf, memoryLimit } from '../support/control-groups.ts';
import { openHouse } from '../support/house.ts';
import { exchange } from '../support/http.ts';
import { onlyOn } from '../support/incus.ts';
import { allProcesses, endProcess } from '../support/processes.ts';
import { sshWell } from '../support/ssh.ts';
import { eventuallyPasses } from '../support/waiting.ts';

const GB = 1024 ** 3;
const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;
const main = await house.machine({ cpu_cores: 1 });

const { text } = await exchange(service.baseUrl, { method: 'GET', path: '/readyz' });
const { capabilities } = JSON.parse(text);
const holds = house.skipLogins === false && capabilities.enforcesCpu && capabilities.enforcesMemory;
const skip =
  onlyOn('sandbox', 'the other one leaves control groups to Incus') ||
  (holds ? false : `SKIPPED: this host does not permit both limits: ${text}`);

const processesOf = (uuid: string) =>
  allProcesses().filter(({ command, mounts }) =>
    `${command}${mounts}`.includes(`/sandbox/instances/${uuid}/`),
  );

function groupFor(uuid: string, controller: 'cpu' | 'memory'): string {
  const found = processesOf(uuid).map(({ pid }) => groupOf(pid, controller));
  const groups = [...new Set(found)].filter((group) => group !== '');
  assert.equal(groups.length, 1, groups.join(' '));
  return groups[0] ?? '';
}

const limitsOf = (uuid: string) => [
  cpuLimit(groupFor(uuid, 'cpu')),
  memoryLimit(groupFor(uuid, 'memory')) / GB,
];

/** The groups of the service and of this test are what they were before any of this. */
function assertServiceIsOutside(): void {
  for (const controller of ['cpu', 'memory'] as const) {
    const own = groupOf(process.pid, controller);
    const its = groupOf(service.pid ?? 0, controller);
    assert.ok(its === own || its === join(own, SERVICE_GROUP), its);
    assert.ok(groupFor(main.uuid, controller).startsWith(`${own}/berth/`), 'below the own group');
  }
}

test('an instance has the CPU and memory of its row, and the service is not in there', {
  skip,
}, async () => {
  assert.deepEqual(limitsOf(main.uuid), [1, 4]);
  assertServiceIsOutside();
});

test('modify changes both at once, while a session goes on', { skip }, async () => {
  await api.expect(200, modified, 'POST', `/v1/instances/${main.id}/modify`, {
    body: { cpu_cores: 2 },
  });
  assert.deepEqual(limitsOf(main.uuid), [2, 8]);
  assert.equal(await sshWell(main.login, 'id -un'), 'ubuntu\n');
});

test('after SIGKILL the limits stay, the next service takes them over, and all groups end with a deletion', {
  skip,
}, async () => {
  const before = [groupFor(main.uuid, 'cpu'), groupFor(main.uuid, 'memory')];
  const lost = await house.machine();
  const lostGroups = [groupFor(lost.uuid, 'cpu'), groupFor(lost.uuid, 'memory')];
  await service.end('SIGKILL');
  for (const { pid } of processesOf(lost.uuid)) endProcess(pid);
  await service.start();
  await api.reach(main.id, 'RUNNING', []);
  assert.deepEqual(limitsOf(main.uuid), [2, 8]);
  assert.deepEqual([groupFor(main.uuid, 'cpu'), groupFor(main.uuid, 'memory')], before);
  assertServiceIsOutside();
  // The service starts again what should run.
  await eventuallyPasses(20_000, () => assert.deepEqual(limitsOf(lost.uuid), [1, 4]));
  await api.reach(lost.id, 'RUNNING', ['STARTING', 'STOPPED']);
  await api.deleteInstance(lost.id);
  await api.gone(lost.uuid);
  const assertGone = () => {
    for (const group of lostGroups) assert.ok(!existsSync(group), group);
  };
  await eventuallyPasses(20_000, assertGone);
  await api.deleteInstance(main.id);
  await api.gone(main.uuid);
  for (const group of before) await eventuallyPasses(20_000, () => assert.ok(!existsSync(group)));
  await service.stop();
  for (const group of before) assert.ok(!existsSync(join(group, '..')), 'no empty folder stays');
});
