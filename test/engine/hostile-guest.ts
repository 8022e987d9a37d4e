/** A guest that puts things in the way of its own authorized_keys: it may lose its login, and nobody else anything. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { OpenSession } from '../support/ssh.ts';
import { type Bench, numberedKey, rejectsWith } from './engine-contract.ts';

const LIMIT_MS = 2_000;

/** What the guest does, and what the error has to say. */
const OBSTACLES: readonly (readonly [what: string, script: string, said: RegExp])[] = [
  ['a symbolic link for the file', 'rm $K; ln -s /etc/passwd $K', /symbolic link/],
  ['a dangling link for the file', 'rm $K; ln -s /nowhere/at/all $K', /symbolic link/],
  ['a symbolic link for the folder', 'mv ~/.ssh ~/s; ln -s s ~/.ssh', /~\/\.ssh .*symbolic link/],
  ['a link out of the guest', 'mv ~/.ssh ~/s; ln -s / ~/.ssh', /~\/\.ssh .*symbolic link/],
  ['a FIFO for the file', 'rm $K; mkfifo $K', /FIFO/],
  ['a FIFO for the folder', 'mv ~/.ssh ~/s; mkfifo ~/.ssh', /FIFO/],
  ['a folder for the file', 'rm $K; mkdir $K', /folder/],
  ['a file for the folder', 'mv ~/.ssh ~/s; touch ~/.ssh', /file/],
  ['a file of 1 GB', 'truncate -s 1G $K', /1 MiB/],
  [
    'a socket for the file',
    `rm $K; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => shift, Listen => 1)' $K`,
    /socket/,
  ],
];

const MENDED: readonly (readonly [what: string, script: string])[] = [
  ['a read-only file', 'chmod 400 $K'],
  ['a file that others may write to', 'chmod 666 $K'],
  ['folders that others may write to', 'chmod 777 ~ ~/.ssh'],
  ['a left-over temporary file', 'touch ~/.ssh/.authorized_keys.new'],
  ['a folder under the temporary name', 'mkdir -p ~/.ssh/.authorized_keys.new/x'],
  ['a link under the temporary name', 'ln -s ~/victim ~/.ssh/.authorized_keys.new'],
];

// Ubuntu's own umask lets the group write.
const PREPARE = 'umask 022; K=~/.ssh/authorized_keys; echo untouched > ~/victim; ';

export function describeHostileGuest(bench: Bench): void {
  describe('a hostile guest', () => {
    for (const [what, script, said] of OBSTACLES) {
      it(`puts ${what}`, () =>
        inSession(bench, async (ref, session) => {
          await session.do(PREPARE + script);
          const key = { publicKey: numberedKey(1) };
          const match = { kind: 'key', ...key } as const;
          for (const work of [
            () => bench.engine.addKey(ref, key),
            () => bench.engine.readKeys(ref),
            () => bench.engine.removeKey(ref, match),
          ]) {
            const error = await inTime(() => rejectsWith('guest_conflict', work));
            assert.match(error.message, said);
          }
        }));
    }
    for (const [what, script] of MENDED) {
      it(`leaves ${what}: the key lands and logs in`, () =>
        inSession(bench, async (ref, session) => {
          await session.do(PREPARE + script);
          await inTime(() => bench.engine.addKey(ref, { publicKey: numberedKey(1) }));
          const content = await session.do('cat ~/.ssh/authorized_keys ~/victim');
          assert.equal(content, `${bench.key.publicKey}\n${numberedKey(1)}\nuntouched\n`);
          assert.equal(await session.do('find ~ ~/.ssh -maxdepth 1 -perm /022 ! -type l'), '');
        }));
    }
  });
}

async function inSession(
  bench: Bench,
  work: (ref: string, session: OpenSession) => Promise<void>,
): Promise<void> {
  const { machine, login } = await bench.run();
  const session = await OpenSession.open(login, join(bench.folder, machine.ref));
  try {
    await work(machine.ref, session);
  } finally {
    // In this order: the client may miss a signal while it waits, but not the end of its connection.
    await bench.engine.delete(machine.ref);
    await session.close();
  }
}

/** Nothing a guest does may make the service wait. */
async function inTime<T>(work: () => Promise<T>): Promise<T> {
  const begin = performance.now();
  const result = await work();
  const tookMs = performance.now() - begin;
  assert.ok(tookMs < LIMIT_MS, `took ${tookMs} ms`);
  return result;
}
