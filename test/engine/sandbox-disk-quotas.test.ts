/** Instances are held to their disk size, on btrfs file systems that this file makes. */

import assert from 'node:assert/strict';
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { probeHost } from '../../src/engines/sandbox/host.ts';
import { Btrfs, type QuotaKind, reasonAgainstBtrfs } from '../support/btrfs.ts';
import { runWell } from '../support/run.ts';
import { type Login, ssh, sshWell } from '../support/ssh.ts';
import { eventuallyPasses } from '../support/waiting.ts';
import { Bench, describeEngine, numberedKey, rejectsWith } from './engine-contract.ts';
import { makeDataFolder, openSandbox, sandboxOptions } from './sandbox-bench.ts';

const MB = 1024 ** 2;
const SMALL_GB = 100 / 1024;
const host = await probeHost(sandboxOptions(''));
const skip = host.isolation ? await reasonAgainstBtrfs() : `SKIPPED: ${host.notices.join(' ')}`;
if (skip) process.stderr.write(`Disk sizes are not tested here. ${skip}\n`);

const write = (login: Login, name: string, megabytes: number) =>
  ssh(login, `dd if=/dev/zero of=${name} bs=1M count=${megabytes} conv=fsync`);

/** Writes until the kernel refuses, down to the last small file. */
async function fill(login: Login): Promise<void> {
  assert.match((await write(login, 'big', 200)).stderr, /Disk quota exceeded/);
  const small = 'for i in $(seq 5000); do head -c 9000 /dev/zero > small-$i || exit 7; done';
  const { code, stderr } = await ssh(login, small);
  assert.equal(code, 7);
  assert.match(stderr, /Disk quota exceeded/);
}

for (const kind of ['simple', 'full'] as const) {
  describe(`disk size, with ${kind} quotas of btrfs`, { skip }, () => describeQuotas(kind));
}

function describeQuotas(kind: QuotaKind): void {
  let disk: Btrfs;
  const bench = new Bench(() => openSandbox(disk.dataFolder()));
  before(async () => {
    disk = await Btrfs.make(kind);
    await bench.setUp();
  });
  after(async () => {
    await bench.tearDown();
    await disk.remove();
  });
  afterEach(async () => {
    const { instances } = await bench.engine.inventory();
    for (const ref of instances.keys()) await bench.engine.delete(ref);
  });
  const small = () => ({ ...bench.machine(), diskSizeGb: SMALL_GB });
  const run = async (source = bench.template) => {
    const machine = small();
    const keys = source.kind === 'template' ? [{ publicKey: bench.key.publicKey }] : [];
    await bench.engine.create(machine, source, keys);
    return { machine, login: await bench.login(machine) };
  };

  it('is enforced, and says so', async () => {
    assert.equal(bench.engine.capabilities.enforcesDiskSize, true);
    assert.doesNotMatch((await bench.engine.health()).notices.join(), /disk size/);
  });

  it('a full disk is full for its instance alone, and a key is added in whole or not at all', async () => {
    const [one, two] = [await run(), await run()];
    const before = await bench.engine.readKeys(one.machine.ref);
    await fill(one.login);
    const key = { publicKey: numberedKey(1) };
    const error = await rejectsWith('no_space', () => bench.engine.addKey(one.machine.ref, key));
    assert.match(error.message, /disk of the instance is full/);
    assert.equal(await bench.engine.readKeys(one.machine.ref), before);
    assert.equal((await ssh(one.login, 'ls -A ~/.ssh')).stdout, 'authorized_keys\n');
    assert.equal((await write(two.login, 'other', 50)).code, 0);
    await sshWell(one.login, 'rm big');
    await eventuallyPasses(10_000, async () => {
      await bench.engine.addKey(one.machine.ref, key);
    });
    assert.match(await bench.engine.readKeys(one.machine.ref), /key-1$/m);
  });

  it('grows while the instance runs, and while it is stopped', async () => {
    const { machine, login } = await run();
    await fill(login);
    await bench.engine.configure({ ...machine, diskSizeGb: 3 * SMALL_GB });
    assert.equal((await write(login, 'more', 90)).code, 0);
    await bench.engine.stop(machine.ref);
    await bench.engine.configure({ ...machine, diskSizeGb: 4 * SMALL_GB });
    assert.deepEqual(await disk.limits(), [400 * MB]);
    await bench.engine.start({ ...machine, diskSizeGb: 4 * SMALL_GB });
    assert.equal((await write(login, 'yet-more', 90)).code, 0);
  });

  it('an instance pays for what it holds, not for its snapshots; a restored one pays for its own', async () => {
    const { machine, login } = await run();
    assert.equal((await write(login, 'data', 70)).code, 0);
    const snapshotRef = bench.snapshotRef();
    await bench.engine.createSnapshot(machine.ref, snapshotRef);
    await sshWell(login, 'rm data; sync');
    await eventuallyPasses(10_000, async () => {
      assert.equal((await write(login, 'data', 70)).code, 0);
    });
    const copy = await run({ kind: 'snapshot', snapshotRef });
    assert.equal(await sshWell(copy.login, 'stat -c %s data'), `${70 * MB}\n`);
    assert.notEqual((await write(copy.login, 'more', 70)).code, 0);
    assert.equal((await disk.limits()).length, 2, 'snapshots are not limited');
    const tooSmall = { ...small(), diskSizeGb: SMALL_GB / 2 };
    const restore = () => bench.engine.create(tooSmall, { kind: 'snapshot', snapshotRef }, []);
    await rejectsWith('no_space', restore);
    assert.equal(await bench.engine.inspect(tooSmall.ref), undefined);
    await bench.engine.deleteSnapshot(snapshotRef);
  });

  it('cannot be evaded with a subvolume of the guest', async () => {
    const { login } = await run();
    for (const words of ['create ~/mine', 'snapshot / ~/mine']) {
      const { code, stderr } = await ssh(login, `/usr/bin/env btrfs subvolume ${words}`);
      assert.notEqual(code, 0);
      assert.match(stderr, words.startsWith('create') ? /Inappropriate ioctl/ : /./);
    }
    assert.equal((await disk.subvolumes()).length, 1);
  });

  it('a deletion leaves no subvolume and no limit, also of a full disk', async () => {
    const { machine, login } = await run();
    await fill(login);
    await bench.engine.delete(machine.ref);
    assert.deepEqual(await disk.subvolumes(), []);
    await eventuallyPasses(60_000, async () => {
      assert.equal((await disk.quotaGroups()).length, 1, 'that of the file system itself');
    });
  });

  it('what a crash left half-built is gone when the engine opens next', async () => {
    const work = join(disk.dataFolder(), 'sandbox/work');
    for (const name of ['early', 'late']) {
      mkdirSync(join(work, name));
      await runWell('btrfs', ['subvolume', 'create', join(work, name, 'disk')]);
    }
    await runWell('chown', ['berth-sandbox:', join(work, 'late/disk')]);
    mkdirSync(join(work, 'late/disk/etc'));
    await runWell('chown', ['berth-sandbox:', join(work, 'late/disk/etc')]);
    const { engine } = await openSandbox(disk.dataFolder());
    assert.deepEqual(readdirSync(work), []);
    assert.deepEqual(await disk.subvolumes(), []);
    await engine.close({ stop: [] });
  });
}

describe('disk size, where it cannot be enforced', () => {
  it('says so on another file system, and what to do', async () => {
    const { engine, cleanup } = await openSandbox(makeDataFolder());
    if (!engine.capabilities.enforcesDiskSize)
      assert.match((await engine.health()).notices.join(), /disk size .* not enforced: .*btrfs/);
    await cleanup();
  });

  it('says how to switch quotas on; instances from before stay unlimited, and so does all else', {
    skip,
  }, async () => {
    const disk = await Btrfs.make('none');
    try {
      const bench = new Bench(() => openSandbox(disk.dataFolder()));
      await bench.setUp();
      assert.equal(bench.engine.capabilities.enforcesDiskSize, false);
      assert.match((await bench.engine.health()).notices.join(), /btrfs quota enable --simple/);
      const old = await bench.create();
      await bench.engine.close({ stop: [] });
      await disk.switchOn('simple');
      const { engine, cleanup } = await openSandbox(disk.dataFolder());
      try {
        assert.equal(engine.capabilities.enforcesDiskSize, true);
        assert.match((await engine.health()).notices.join(), /1 of the instances .* before/);
        await engine.start(old);
        await engine.configure({ ...old, diskSizeGb: SMALL_GB });
        assert.deepEqual(await disk.limits(), []);
      } finally {
        await cleanup();
      }
    } finally {
      await disk.remove();
    }
  });
});

if (skip === false) {
  const disk = await Btrfs.make('simple');
  after(() => disk.remove());
  describeEngine('sandbox on btrfs', () => openSandbox(disk.dataFolder()));
}
