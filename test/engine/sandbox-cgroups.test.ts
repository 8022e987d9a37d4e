/** Instances are held to their CPU and memory: on whatever control groups this host really has. */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { LimitsSetting } from '../../src/engines/sandbox/cgroup-trees.ts';
import { findPlaces } from '../../src/engines/sandbox/cgroup-trees.ts';
import { probeHost } from '../../src/engines/sandbox/host.ts';
import { createSandboxEngine } from '../../src/engines/sandbox/sandbox.ts';
import { cpuLimit, groupOf, memoryLimit, readSetting } from '../support/control-groups.ts';
import { allProcesses, endProcess, endSandboxes } from '../support/processes.ts';
import { ssh, sshWell } from '../support/ssh.ts';
import { eventually } from '../support/waiting.ts';
import { Bench, rejectsWith } from './engine-contract.ts';
import { makeDataFolder, openSandbox, sandboxOptions } from './sandbox-bench.ts';

const GB = 1024 ** 3;
/** Filling memory takes long on a busy machine. */
const PATIENCE_MS = 120_000;
const limits = (process.env.BERTH_SANDBOX_LIMITS || 'auto') as LimitsSetting;

const look = await openSandbox(makeDataFolder(), { limits });
const { capabilities } = look.engine;
const notices = (await look.engine.health()).notices
  .filter((notice) => notice.includes('not limited'))
  .join(' ');
await look.cleanup();
const host = await probeHost(sandboxOptions(''));
const skipOf = (isThere: boolean) => (isThere && host.isolation ? false : `SKIPPED: ${notices}`);
const skipCpu = skipOf(capabilities.enforcesCpu);
const skipMemory = skipOf(capabilities.enforcesMemory);
if (skipCpu || skipMemory) process.stderr.write(`Not all limits are tested here: ${notices}\n`);

/** Of whatever shows the instance's folder in its command or its mounts. */
const processesOf = (ref: string) =>
  allProcesses().filter(({ command, mounts }) =>
    `${command}${mounts}`.includes(`/sandbox/instances/${ref}/`),
  );

/** The groups of all processes that an instance has, each once. */
function groupsOf(ref: string, controller: 'cpu' | 'memory'): string[] {
  const found = processesOf(ref);
  assert.ok(found.length >= 2, 'the launcher and sshd');
  const groups = found.map(({ pid }) => groupOf(pid, controller));
  // Of one that has ended meanwhile nothing is known.
  return [...new Set(groups)].filter((group) => group !== '');
}

describe('limits of the sandbox engine', () => {
  const dataFolder = makeDataFolder();
  const bench = new Bench(() => openSandbox(dataFolder, { limits }));
  before(() => bench.setUp());
  after(async () => {
    await bench.tearDown();
    endSandboxes(dataFolder);
  });
  const source = { kind: 'template', template: 'base' } as const;
  const groupFor = (ref: string, controller: 'cpu' | 'memory') => {
    const groups = groupsOf(ref, controller);
    assert.equal(groups.length, 1, groups.join(' '));
    const [group = ''] = groups;
    assert.ok(group.endsWith(`/${ref}`), group);
    return group;
  };

  it('CPU: hold all of an instance from its start on, until it is gone', {
    skip: skipCpu,
  }, async () => {
    const { machine, login } = await bench.run();
    await sshWell(login, 'setsid sleep 60 > /dev/null 2>&1 < /dev/null &');
    const group = groupFor(machine.ref, 'cpu');
    assert.equal(cpuLimit(group), machine.cpuCores);
    await bench.engine.stop(machine.ref);
    assert.ok(!existsSync(group), 'stopped');
    await bench.engine.start(machine);
    assert.equal(groupFor(machine.ref, 'cpu'), group);
    await bench.engine.delete(machine.ref);
    assert.ok(!existsSync(group), 'deleted');
  });

  it('CPU: really slow down whoever uses more', { skip: skipCpu }, async () => {
    const { machine, login } = await bench.run();
    const group = groupFor(machine.ref, 'cpu');
    const throttled = () => Number(/nr_throttled (\d+)/.exec(readSetting(group, 'cpu.stat'))?.[1]);
    const busy = 'timeout 60 sh -c "while :; do :; done" &';
    await sshWell(login, `(${busy}) > /dev/null 2>&1 < /dev/null`);
    const before = throttled();
    // So little that it is reached on a busy machine too.
    await bench.engine.configure({ ...machine, cpuCores: 0.1 });
    await eventually('throttling', 60_000, () => (throttled() > before ? true : undefined));
    await bench.engine.delete(machine.ref);
  });

  it('CPU: change while the instance runs, and stay when the change fails', {
    skip: skipCpu,
  }, async () => {
    const { machine } = await bench.run();
    const group = groupFor(machine.ref, 'cpu');
    await bench.engine.configure({ ...machine, cpuCores: 3 });
    assert.equal(cpuLimit(group), 3);
    if (bench.engine.capabilities.publishesPorts) {
      const taken = { ...machine, cpuCores: 2, httpPorts: [machine.sshPort] };
      await rejectsWith('port_taken', () => bench.engine.configure(taken));
      assert.equal(cpuLimit(group), 3);
    }
    await bench.engine.configure({ ...machine, cpuCores: 1 });
    assert.equal(cpuLimit(group), 1);
    await bench.engine.delete(machine.ref);
  });

  it("CPU: are each instance's own", { skip: skipCpu }, async () => {
    const [one, two] = [await bench.run(), await bench.run()];
    const groups = [one, two].map(({ machine }) => groupFor(machine.ref, 'cpu'));
    assert.notEqual(groups[0], groups[1]);
    await bench.engine.configure({ ...one.machine, cpuCores: 2 });
    assert.deepEqual(groups.map(cpuLimit), [2, 1]);
    for (const { machine } of [one, two]) await bench.engine.delete(machine.ref);
  });

  it('CPU: take in an instance that was started without', { skip: skipCpu }, async () => {
    const folder = makeDataFolder();
    const old = await createSandboxEngine(sandboxOptions(folder, { limits: 'off' }));
    assert.equal(old.capabilities.enforcesCpu, false);
    assert.match((await old.health()).notices.join(), /CPU of instances is not limited/);
    const machine = bench.machine();
    await old.create(machine, source, [{ publicKey: bench.key.publicKey }]);
    const { ip, port } = await old.start(machine);
    const login = { host: ip, port, keyFile: bench.key.keyFile };
    await sshWell(login, 'setsid sleep 60 > /dev/null 2>&1 < /dev/null &');
    for (const group of groupsOf(machine.ref, 'cpu')) assert.ok(!group.endsWith(machine.ref));
    await old.close({ stop: [] });
    const opened = await openSandbox(folder, { limits });
    const groups = groupsOf(machine.ref, 'cpu');
    assert.equal(groups.length, 1);
    assert.ok(groups[0]?.endsWith(`/${machine.ref}`));
    await opened.engine.configure(machine);
    assert.equal(cpuLimit(groups[0] ?? ''), 1);
    await opened.cleanup();
  });

  it('CPU: outlive the service, and a crash leaves no groups behind', {
    skip: skipCpu,
  }, async () => {
    const folder = makeDataFolder();
    const first = await createSandboxEngine(sandboxOptions(folder, { limits }));
    const [kept, lost] = [bench.machine(), bench.machine()];
    for (const machine of [kept, lost]) {
      await first.create(machine, source, []);
      await first.start(machine);
    }
    const [group = ''] = groupsOf(kept.ref, 'cpu');
    const [left = ''] = groupsOf(lost.ref, 'cpu');
    await first.configure({ ...kept, cpuCores: 2 });
    await first.close({ stop: [] });
    for (const { pid } of processesOf(lost.ref)) endProcess(pid);
    await eventually('its end', 5_000, () => readSetting(left, 'cgroup.procs') === '' || undefined);
    assert.ok(existsSync(left));
    const opened = await openSandbox(folder, { limits });
    assert.ok(!existsSync(left), 'swept');
    assert.deepEqual(groupsOf(kept.ref, 'cpu'), [group]);
    assert.equal(cpuLimit(group), 2);
    await opened.cleanup();
    assert.ok(!existsSync(join(group, '..')), 'no empty folder stays');
  });

  it("CPU: are out of the guest's reach", { skip: skipCpu }, async () => {
    const { machine, login } = await bench.run();
    const mounts = await sshWell(login, 'cat /proc/self/mountinfo; ls -d /sys 2>&1 || :');
    assert.doesNotMatch(mounts, /cgroup|^\/sys$/m);
    const { code } = await ssh(login, 'mkdir /tmp/g; mount -t cgroup2 none /tmp/g');
    assert.notEqual(code, 0);
    await bench.engine.delete(machine.ref);
  });

  it('memory: end the hog and not the instance', { skip: skipMemory }, async () => {
    const { machine, login } = await bench.run();
    const group = groupFor(machine.ref, 'memory');
    assert.equal(memoryLimit(group), GB);
    const command = 'head -c 1200000000 /dev/zero | (tail; echo "ended with $?")';
    const hog = await ssh(login, command, { timeoutMs: PATIENCE_MS });
    assert.match(hog.stdout, /ended with 137/);
    assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    assert.equal((await bench.engine.inspect(machine.ref))?.state, 'running');
    await bench.engine.delete(machine.ref);
    assert.ok(!existsSync(group));
  });

  it('memory: grow and shrink, but not below what is in use', { skip: skipMemory }, async () => {
    const machine = { ...(await bench.create()), memoryGb: 0.5 };
    const login = await bench.login(machine);
    const group = groupFor(machine.ref, 'memory');
    assert.equal(memoryLimit(group), GB / 2);
    const fill = 'head -c 350000000 /dev/zero > /dev/shm/full';
    await sshWell(login, fill, { timeoutMs: PATIENCE_MS });
    const smaller = { ...machine, cpuCores: 2, memoryGb: 0.25 };
    await rejectsWith('guest_conflict', () => bench.engine.configure(smaller));
    assert.equal(memoryLimit(group), GB / 2);
    await bench.engine.configure({ ...machine, memoryGb: 1 });
    assert.equal(memoryLimit(group), GB);
    assert.equal(await sshWell(login, 'rm /dev/shm/full; id -un'), 'ubuntu\n');
    await bench.engine.configure(smaller);
    assert.equal(memoryLimit(group), GB / 4);
    assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    await bench.engine.delete(machine.ref);
  });
});

describe('where control groups are', () => {
  const mount = (root: string, at: string, type: string, options: string) =>
    `31 23 0:28 ${root} ${at} rw,relatime - ${type} ${type} ${options}`;

  it('finds version 2, in a group of a service', () => {
    const places = findPlaces(
      mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw'),
      '0::/system.slice/berth.service\n',
    );
    const ownGroup = '/sys/fs/cgroup/system.slice/berth.service';
    assert.deepEqual(places, [
      { version: 2, controllers: [], mountPoint: '/sys/fs/cgroup', ownGroup },
    ]);
  });

  it('finds version 1 wherever it is mounted, CPU together with others, and part of a tree', () => {
    const mounts = [
      mount('/docker/abc', '/a\\040b/cpu', 'cgroup', 'rw,cpu,cpuacct'),
      mount('/', '/mem', 'cgroup', 'rw,memory'),
      mount('/', '/pids', 'cgroup', 'rw,pids'),
    ].join('\n');
    const own = '4:cpu,cpuacct:/docker/abc/x\n3:memory:/docker/abc\n2:pids:/\n';
    const places = findPlaces(mounts, own).map(({ controllers, ownGroup }) => [
      controllers,
      ownGroup,
    ]);
    assert.deepEqual(places, [
      [['cpu'], '/a b/cpu/x'],
      [['memory'], '/mem/docker/abc'],
    ]);
  });

  it('finds nothing outside of what is mounted', () => {
    const mounts = mount('/docker/abc', '/sys/fs/cgroup', 'cgroup2', 'rw');
    assert.deepEqual(findPlaces(mounts, '0::/docker/abcd\n'), []);
    assert.deepEqual(findPlaces(mount('/', '/c', 'cgroup2', 'rw'), '0::/../other\n'), []);
  });
});
