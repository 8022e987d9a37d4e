/** A database on a full disk says so, loses nothing, and still lets things be deleted. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { type Db, openStore } from '../../src/store/database.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-full-'));
const mounted = mountSmallDisk();
after(() => {
  if (mounted) execFileSync('umount', [folder]);
  rmSync(folder, { recursive: true, force: true });
});

function mountSmallDisk(): boolean {
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', folder], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Writes until nothing fits any more. */
function fillDisk(): void {
  const file = openSync(join(folder, 'filler'), 'w');
  for (const size of [65_536, 4096, 512]) {
    try {
      for (;;) writeSync(file, Buffer.alloc(size));
    } catch {
      // Full for this size.
    }
  }
  closeSync(file);
}

const addOrganizations = async (tx: Db, count: number) => {
  for (let number = 0; number < count; number++) {
    const row = { id: newId(), name: newId(), next_identifier: 0, created_at: 1 };
    await tx.insertInto('organizations').values(row).execute();
  }
};
const skip = mounted ? false : 'this user may not mount a small disk';

test('a full disk is a clear error, and what frees space still works', { skip }, async () => {
  const store = await openStore(`sqlite:${join(folder, 'berth.db')}`);
  await store.transaction((tx) => addOrganizations(tx, 1));
  fillDisk();
  const write = () => store.transaction((tx) => addOrganizations(tx, 500));
  await assert.rejects(write, { name: 'AppError', kind: 'unavailable', message: /disk is full/ });
  await assert.rejects(write, { name: 'AppError', kind: 'unavailable' }, 'and again');
  await store.freeingTransaction((tx) => addOrganizations(tx, 20));
  rmSync(join(folder, 'filler'));
  await write();
  const { count } = await store.db
    .selectFrom('organizations')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  assert.equal(count, 521);
  await store.close();
});
