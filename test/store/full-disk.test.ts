/** A database on a full disk says so, loses nothing, and still lets things be deleted. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { Actor, ServiceContext } from '../../src/services/context.ts';
import { KeptAnswerService } from '../../src/services/kept-answers.ts';
import { type Db, openStore } from '../../src/store/database.ts';
import { insertMember } from '../../src/store/members.ts';
import { insertToken } from '../../src/store/tokens.ts';
import { fillDisk } from '../support/full-disk.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-full-'));
const filler = join(folder, 'filler');
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
  fillDisk(filler);
  const write = () => store.transaction((tx) => addOrganizations(tx, 500));
  await assert.rejects(write, { name: 'AppError', kind: 'unavailable', message: /disk is full/ });
  await assert.rejects(write, { name: 'AppError', kind: 'unavailable' }, 'and again');
  await store.freeingTransaction((tx) => addOrganizations(tx, 20));
  rmSync(filler);
  await write();
  const { count } = await store.db
    .selectFrom('organizations')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  assert.equal(count, 521);
  await store.close();
});

test('a delete under an Idempotency-Key finds its place on a full disk', { skip }, async () => {
  rmSync(filler, { force: true });
  const store = await openStore(`sqlite:${join(folder, 'second.db')}`);
  const [orgId, userId, tokenId] = ['org', 'user', 'token'];
  await store.transaction(async (tx) => {
    const org = { id: orgId, name: 'acme', next_identifier: 0, created_at: 1 };
    await tx.insertInto('organizations').values(org).execute();
    await insertMember(tx, { id: userId, org_id: orgId, email: 'a@b', created_at: 1 });
    const secret = { name: 't', prefix: 'p', hash: 'h', scopes: '["admin"]' };
    const times = { created_at: 1, expires_at: null, last_used_at: null };
    await insertToken(tx, { id: tokenId, org_id: orgId, user_id: userId, ...secret, ...times });
  });
  const context = { store, now: Date.now } as ServiceContext;
  const answers = new KeptAnswerService(context, 'node');
  const actor = { orgId, tokenId } as Actor;
  const begin = (key: string, frees: boolean) =>
    answers.begin(actor, {
      token: 't',
      key,
      method: 'POST',
      path: '/',
      body: Buffer.alloc(0),
      frees,
    });
  const fill = async () => {
    for (let number = 0; number < 5000; number++) await begin(`key ${number}`, false);
  };
  fillDisk(filler);
  await assert.rejects(fill, { kind: 'unavailable' });
  assert.ok('open' in (await begin('delete', true)));
  await store.close();
});
