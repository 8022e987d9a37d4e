import assert from 'node:assert/strict';
import { test } from 'node:test';
import { incusErrorOf } from '../../src/engines/incus/incus-error.ts';
import { isNoDisk } from '../../src/engines/incus/rescue.ts';

const where = { endpoints: ['unix:/var/lib/incus/unix.socket'], pool: 'berth' };
const disk = { name: 'berth-i-one', project: 'tenants', type: 'container', devices: {} } as const;
const folder = '/var/lib/incus/storage-pools/berth/containers';

const complaintAbout = (path: string) =>
  incusErrorOf(
    500,
    `Failed deleting subvolume "${path}": Failed to run: btrfs subvolume delete ${path}: exit status 1 (ERROR: Not a Btrfs subvolume: Invalid argument)`,
  );

test('an instance is without a disk when Incus names the disk itself', () => {
  assert.equal(isNoDisk(where, disk, complaintAbout(`${folder}/tenants_berth-i-one`)), true);
});

test('what a guest has in its disk, and what others have, says nothing of it', () => {
  const others = ['tenants_berth-i-one/rootfs/root/a', 'tenants_berth-i-one2', 'berth-i-one'];
  for (const path of others)
    assert.equal(isNoDisk(where, disk, complaintAbout(`${folder}/${path}`)), false, path);
  const full = incusErrorOf(500, `${folder}/tenants_berth-i-one: No space left on device`);
  assert.equal(isNoDisk(where, disk, full), false);
});
