/** A service whose disk was filled while it was away starts all the same, so that something can be deleted. */

import assert from 'node:assert/strict';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Api, SMALL_INSTANCE } from '../support/client.ts';
import { fillDisk } from '../support/full-disk.ts';
import { newTenantToken, WAY_UP } from '../support/house.ts';
import { endSandboxes } from '../support/processes.ts';
import { run } from '../support/run.ts';
import { Service } from '../support/service.ts';

const service = await Service.prepare();
const { dataFolder } = service;
const reserve = join(dataFolder, 'berth.db.reserve');
const filler = join(dataFolder, 'filler');
const options = ['-t', 'tmpfs', '-o', 'size=24m,mode=0711', 'tmpfs', dataFolder];
const isMounted = (await run('mount', options)).code === 0;
if (!isMounted) console.error('SKIPPING THE FULL DISK: this user may not mount a small one');
after(async () => {
  await service.end('SIGKILL');
  endSandboxes(dataFolder);
  if (isMounted) await run('umount', ['--lazy', dataFolder]);
  await service.dispose();
});

const skip = !isMounted && 'this user may not mount a small disk';

for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
  test(`ended by ${signal}, it starts on a full disk, and a snapshot can be deleted`, {
    skip,
  }, async () => {
    await service.start();
    assert.ok(existsSync(reserve));
    const api = new Api(() => service.baseUrl, await newTenantToken(service, signal.toLowerCase()));
    const { uuid } = await api.createInstance(SMALL_INSTANCE);
    await api.reach(uuid, 'RUNNING', WAY_UP);
    await api.createSnapshot(uuid, 'kept');
    const { id } = await api.snapshotReady('kept');
    if (signal === 'SIGKILL') fillDisk(filler);
    await service.end(signal);
    fillDisk(filler);
    await service.start();
    // What a crash leaves is room enough; a clean end takes the write-ahead log and its index away.
    if (signal === 'SIGTERM') assert.match(await service.logTail(), /the disk is full: the space/);
    await api.deleteSnapshot(id);
    assert.deepEqual(await api.snapshots(), []);
    rmSync(filler);
    await service.stop();
  });
}

test('with nothing kept it says what to do', { skip }, async () => {
  fillDisk(filler);
  rmSync(reserve, { force: true });
  fillDisk(filler);
  service.launch();
  assert.equal((await service.waitForExit()).code, 1);
  assert.match(
    await service.logTail(),
    /berth: The database in .* cannot be used: .*Make room on its disk/,
  );
});
