/** What only the Incus engine has to do: limits, leftovers of crashes, projects, cards. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { EngineRef } from '../../src/engines/engine.ts';
import { createIncusEngine } from '../../src/engines/incus/incus.ts';
import { instanceName, projectOf, snapshotName } from '../../src/engines/incus/names.ts';
import type { InstanceObject } from '../../src/engines/incus/objects.ts';
import { skipIncus } from '../support/incus.ts';
import { runWell } from '../support/run.ts';
import { loginProblem, ssh, sshWell } from '../support/ssh.ts';
import { eventually, eventuallyPasses } from '../support/waiting.ts';
import { type Bench, rejectsWith } from './engine-contract.ts';
import { incusBench, type OpenedIncus } from './incus-bench.ts';

describe('incus', { skip: skipIncus }, () => {
  const { bench, opened } = incusBench();
  before(() => bench.setUp());
  after(() => bench.tearDown());
  const call: World['call'] = (method, path, body) =>
    opened().place.client.change(method, path, body, { project: opened().place.project });
  const world: World = {
    bench,
    opened,
    call,
    operate: (ref, action) => {
      const body = { action, force: true, timeout: 30 };
      return call('PUT', `/1.0/instances/${instanceName(ref)}/state`, body);
    },
    read: (name) =>
      opened().place.client.get<InstanceObject>(`/1.0/instances/${name}`, {
        project: opened().place.project,
      }),
  };
  describeLimits(world);
  describeLeftovers(world);
  describeEnd(world);
  describeSurroundings(world);
});

interface World {
  readonly bench: Bench;
  readonly opened: () => OpenedIncus;
  readonly call: (
    method: 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: unknown,
  ) => Promise<unknown>;
  readonly read: (name: string) => Promise<InstanceObject>;
  /** What an operator does to an instance with Incus's own tools. */
  readonly operate: (ref: EngineRef, action: string) => Promise<unknown>;
}

/** Writes so many MB into a file of the guest, to disk. */
const fill = (megabytes: number) =>
  `dd if=/dev/urandom of=$HOME/fill bs=1M count=${megabytes} conv=fsync status=none`;

function describeLimits({ bench, read }: World): void {
  it('gives a guest the sizes of its spec, and larger ones while it runs', async () => {
    const { engine } = bench;
    const machine = { ...bench.machine(), memoryGb: 1, diskSizeGb: 1 };
    await engine.create(machine, bench.template, [{ publicKey: bench.key.publicKey }]);
    const login = await bench.login(machine);
    const boot = await sshWell(login, 'cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1');
    const memory = "awk '/MemTotal/ {print $2}' /proc/meminfo";
    assert.equal(await sshWell(login, `nproc; ${memory}`), `1\n${2 ** 20}\n`);
    assert.match((await ssh(login, fill(1100))).stderr, /quota|No space/);
    await engine.configure({ ...machine, cpuCores: 2, memoryGb: 2, diskSizeGb: 2 });
    assert.equal(await sshWell(login, `nproc; ${memory}`), `2\n${2 * 2 ** 20}\n`);
    await sshWell(login, fill(1100));
    const again = await sshWell(login, 'cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1');
    assert.equal(again, boot);
    await engine.delete(machine.ref);
  });

  it('never makes a disk smaller, and restores into none that is', async () => {
    const { engine } = bench;
    const { machine } = await bench.run();
    await engine.configure({ ...machine, cpuCores: 2, diskSizeGb: 9 });
    const { config, devices } = await read(instanceName(machine.ref));
    assert.deepEqual([devices.root?.size, config['limits.cpu']], ['10GB', '2']);
    const snapshotRef = bench.snapshotRef();
    await engine.createSnapshot(machine.ref, snapshotRef);
    const copy = { ...bench.machine(), diskSizeGb: 9 };
    const source = { kind: 'snapshot', snapshotRef } as const;
    const error = await rejectsWith('failed', () => engine.create(copy, source, []));
    assert.match(error.message, /10 GB/);
    assert.equal(await engine.inspect(copy.ref), undefined);
    await engine.deleteSnapshot(snapshotRef);
    await engine.delete(machine.ref);
  });

  it('snapshots, stops, starts and enlarges what its guest has filled', async () => {
    const { engine } = bench;
    const machine = { ...bench.machine(), diskSizeGb: 1 };
    await engine.create(machine, bench.template, [{ publicKey: bench.key.publicKey }]);
    const login = await bench.login(machine);
    await ssh(login, fill(1100));
    const snapshotRef = bench.snapshotRef();
    await engine.createSnapshot(machine.ref, snapshotRef);
    await engine.stop(machine.ref);
    await engine.start(machine);
    const more = 'dd if=/dev/urandom of=$HOME/more bs=1M count=100 conv=fsync status=none';
    assert.match((await ssh(login, more)).stderr, /quota|No space/, 'the limit holds again');
    for (const stopped of [false, true]) {
      const larger = { ...machine, diskSizeGb: stopped ? 3 : 2 };
      if (stopped) await engine.stop(machine.ref);
      await engine.configure(larger);
      await engine.start(larger);
      await sshWell(login, `${more}; mv $HOME/more $HOME/more-${larger.diskSizeGb}`);
      await ssh(login, 'dd if=/dev/urandom of=$HOME/rest bs=1M count=1100 conv=fsync status=none');
    }
    await engine.deleteSnapshot(snapshotRef);
    await engine.delete(machine.ref);
  });

  it('names the card in what it asks of Incus, and leaves nothing behind where there is none', async () => {
    const { engine } = bench;
    const gpus = [{ attach: 'physical', pci: '0000:ff:1f.7' }];
    const machine = { ...bench.machine(), gpus };
    await engine.create(machine, bench.template, []);
    const { devices } = await read(instanceName(machine.ref));
    assert.deepEqual(devices.gpu0, { type: 'gpu', gputype: 'physical', pci: '0000:ff:1f.7' });
    await rejectsWith('failed', () => engine.start(machine));
    assert.deepEqual(await engine.inspect(machine.ref), { state: 'stopped' });
    await engine.start({ ...machine, gpus: [] });
    await engine.delete(machine.ref);
  });
}

function describeLeftovers({ bench, opened, call, read, operate }: World): void {
  it('makes anew what was left half-made under its name', async () => {
    const { engine } = bench;
    const machine = bench.machine();
    const config = { 'user.berth.kind': 'instance', 'user.berth.ref': machine.ref };
    const body = { name: instanceName(machine.ref), source: { type: 'none' }, config };
    const root = { type: 'disk', path: '/', pool: opened().place.pool };
    await call('POST', '/1.0/instances', { ...body, devices: { root } });
    assert.deepEqual((await engine.inventory()).instances.get(machine.ref), { state: 'stopped' });
    await engine.create(machine, bench.template, [{ publicKey: bench.key.publicKey }]);
    assert.equal(await sshWell(await bench.login(machine), 'id -un'), 'ubuntu\n');
    await engine.delete(machine.ref);
  });

  it('counts no snapshot whose copy was never finished, and makes it anew or removes it', async () => {
    const { engine } = bench;
    const { machine } = await bench.run();
    const [snapshotRef, other] = [bench.snapshotRef(), bench.snapshotRef()];
    for (const ref of [snapshotRef, other]) {
      const config = { 'user.berth.kind': 'snapshot', 'user.berth.ref': ref };
      const root = { type: 'disk', path: '/', pool: opened().place.pool };
      const body = { name: snapshotName(ref), source: { type: 'none' }, config, devices: { root } };
      await call('POST', '/1.0/instances', body);
      assert.equal((await engine.inventory()).snapshots.has(ref), false);
    }
    const source = { kind: 'snapshot', snapshotRef } as const;
    await rejectsWith('failed', () => engine.create(bench.machine(), source, []));
    await engine.createSnapshot(machine.ref, snapshotRef);
    assert.ok((await engine.inventory()).snapshots.has(snapshotRef));
    const holder = await read(snapshotName(snapshotRef));
    assert.deepEqual(
      Object.keys(holder.config).filter((key) => key.startsWith('limits.')),
      [],
    );
    assert.deepEqual(holder.devices.eth0, { type: 'none' });
    for (const ref of [snapshotRef, other]) await engine.deleteSnapshot(ref);
    await assert.rejects(read(snapshotName(other)), /not found/);
    await engine.delete(machine.ref);
  });

  it('starts again what stays frozen, and what was stopped by others', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    const look = async () => (await engine.inventory()).instances.get(machine.ref);
    for (const action of ['freeze', 'stop']) {
      assert.equal((await look())?.state, 'running');
      await operate(machine.ref, action);
      // Other tools stop or freeze it for a moment.
      assert.deepEqual(await look(), { state: 'stopped', unsettled: true });
      assert.deepEqual(await look(), { state: 'stopped' });
      await engine.start(machine);
      assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    }
    // And again in the next moment.
    for (const _times of [1, 2]) {
      await operate(machine.ref, 'stop');
      assert.deepEqual(await look(), { state: 'stopped', unsettled: true });
      await operate(machine.ref, 'start');
    }
    await engine.delete(machine.ref);
  });

  it('leaves the ports of what others stop for a moment, also when it is changed then', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    await operate(machine.ref, 'stop');
    await engine.configure({ ...machine, memoryGb: machine.memoryGb + 1 });
    await operate(machine.ref, 'start');
    await eventuallyPasses(30_000, async () => assert.equal(await loginProblem(login), undefined));
    assert.equal((await engine.inspect(machine.ref))?.endpoint?.port, machine.sshPort);
    await engine.delete(machine.ref);
  });

  it('waits for the end of what others do with an instance before it starts it', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    const restarting = operate(machine.ref, 'restart');
    await eventually(
      'it is down',
      30_000,
      async () => (await read(instanceName(machine.ref))).status === 'Stopped' || undefined,
      10,
    );
    await engine.start(machine);
    await restarting;
    assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    await engine.delete(machine.ref);
  });

  it('takes no copy that an operator made for the instance, or for the snapshot', async () => {
    const { engine } = bench;
    const { machine } = await bench.run();
    const snapshotRef = bench.snapshotRef();
    await engine.createSnapshot(machine.ref, snapshotRef);
    const copies = [instanceName(machine.ref), snapshotName(snapshotRef)].map((source, index) => ({
      name: `backup-${index}-${snapshotRef}`,
      profiles: [],
      source: { type: 'copy', source, instance_only: true },
    }));
    for (const copy of copies) await call('POST', '/1.0/instances', copy);
    const all = await engine.inventory();
    assert.equal(all.instances.get(machine.ref)?.state, 'running');
    await engine.delete(machine.ref);
    await engine.deleteSnapshot(snapshotRef);
    const rest = await engine.inventory();
    assert.equal(rest.instances.has(machine.ref), false);
    assert.equal(rest.snapshots.has(snapshotRef), false);
    for (const { name } of copies) await call('DELETE', `/1.0/instances/${name}`);
  });

  it('removes an instance whose disk became an empty folder', async () => {
    const { engine } = bench;
    const machine = await bench.create();
    const { place } = opened();
    const state = dirname(place.url.slice('unix:'.length));
    const volume = `${place.project}_${instanceName(machine.ref)}`;
    const path = join(state, 'storage-pools', place.pool, 'containers', volume);
    await runWell('btrfs', ['subvolume', 'delete', path]);
    mkdirSync(path);
    await engine.delete(machine.ref);
    await assert.rejects(read(instanceName(machine.ref)), /not found/);
  });

  it('says what to do when an instance of another Berth has the address of a new one', async () => {
    const { engine } = bench;
    const theirs = await bench.create();
    const ours = { ...bench.machine(), sshPort: theirs.sshPort };
    await engine.create(ours, bench.template, []);
    const error = await rejectsWith('failed', () => engine.start(ours));
    assert.match(error.message, /has the address that this one would have.*engine check/);
    await engine.delete(theirs.ref);
    await engine.start(ours);
    await engine.delete(ours.ref);
  });

  it('adopts what runs when it opens anew', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    const seen = await engine.inspect(machine.ref);
    const second = await createIncusEngine(opened().options);
    assert.deepEqual(await second.inspect(machine.ref), seen);
    assert.deepEqual(await second.start(machine), { ip: login.host, port: login.port });
    await second.delete(machine.ref);
    await second.close({ stop: [] });
    // The first one has not noticed: its own list of ports is of no harm.
    await engine.delete(machine.ref);
  });
}

function describeEnd({ bench, opened }: World): void {
  it('stops what it is told to when it ends, and nothing of another Berth', async () => {
    const { engine } = bench;
    const [ours, theirs] = [await bench.run(), await bench.run()];
    const ending = await createIncusEngine(opened().options);
    await ending.close({ stop: [ours.machine.ref, 'long-gone'] });
    assert.deepEqual(await engine.inspect(ours.machine.ref), { state: 'stopped' });
    assert.equal(await sshWell(theirs.login, 'id -un'), 'ubuntu\n');
    for (const { machine } of [ours, theirs]) await engine.delete(machine.ref);
  });
}

function describeSurroundings({ bench, opened }: World): void {
  it('puts organizations into projects of their own where that is wanted', async () => {
    const { place, options } = opened();
    const perOrganization = { ...options, project: 'default', projectPerOrganization: true };
    const engine = await createIncusEngine(perOrganization);
    const machines = [0, 1].map(() => ({ ...bench.machine(), orgId: randomUUID() }));
    const projects = machines.map(({ orgId }) => projectOf(perOrganization, orgId));
    const keys = [{ publicKey: bench.key.publicKey }];
    const snapshotRef = bench.snapshotRef();
    try {
      for (const machine of machines) await engine.create(machine, bench.template, keys);
      const [one, two] = machines;
      assert.ok(one && two);
      await engine.start(one);
      await engine.createSnapshot(one.ref, snapshotRef);
      // One that has made nothing itself finds all of it.
      const second = await createIncusEngine(perOrganization);
      assert.equal((await second.inspect(one.ref))?.state, 'running');
      assert.equal((await second.inspect(two.ref))?.state, 'stopped');
      assert.equal((await second.inventory()).snapshots.has(snapshotRef), true);
      await second.close({ stop: [] });
      const { client } = place;
      // An operator's backup in another project, of the same name.
      const name = instanceName(one.ref);
      const source = { type: 'copy', source: name, project: projects[0], instance_only: true };
      const there = { project: place.project, timeoutMs: 60_000 };
      await client.change('POST', '/1.0/instances', { name, profiles: [], source }, there);
      assert.equal((await engine.inventory()).instances.get(one.ref)?.state, 'running');
      assert.equal((await engine.inspect(one.ref))?.state, 'running');
      for (const [index, { ref }] of machines.entries())
        await client.get(`/1.0/instances/${instanceName(ref)}`, {
          project: projects[index] ?? '',
        });
      // Ids that begin alike, which chance does not make.
      const taken = { ...bench.machine(), orgId: `${one.orgId.slice(0, 18)}-0000-000000000000` };
      await rejectsWith('failed', () => engine.create(taken, bench.template, keys));
    } finally {
      for (const { ref } of machines) await engine.delete(ref);
      await engine.deleteSnapshot(snapshotRef);
      for (const project of projects)
        await place.client.change('DELETE', `/1.0/projects/${project}`).catch(() => undefined);
      await engine.close({ stop: [] });
    }
  });

  it('says what it can do, and what there is to place instances on', () => {
    const { capabilities } = bench.engine;
    assert.ok(capabilities.templates.includes('base'));
    const [host] = capabilities.hosts;
    assert.ok(host?.online && host.cpuCores > 0 && host.memoryGb > 0 && host.diskGb > 0);
    assert.deepEqual(capabilities.hosts.length, 1);
    assert.equal(capabilities.attaches.length > 0, host.gpus.length > 0);
  });

  it('opens without an Incus, says so, and works no wonders', async () => {
    const endpoints = [`unix:${join(bench.folder, 'no-such-socket')}`];
    const engine = await createIncusEngine({ ...opened().options, endpoints });
    const health = await engine.health();
    assert.equal(health.ok, false);
    assert.match(health.notices.join(' '), /no answer/);
    assert.deepEqual(engine.capabilities.hosts, []);
    const machine = bench.machine();
    await rejectsWith('unavailable', () => engine.inventory());
    await rejectsWith('unavailable', () => engine.create(machine, bench.template, []));
    await rejectsWith('unavailable', () => engine.delete(machine.ref));
    await rejectsWith('unavailable', () =>
      engine.addKey(machine.ref, { publicKey: bench.key.publicKey }),
    );
    await engine.close({ stop: [] });
  });
}
