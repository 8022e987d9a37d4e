/** What a guest does to make others wait, fail, or share: leases, deep folders, keyrings; and a race for a port. */

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { EngineError } from '../../src/engines/engine.ts';
import { probeHost } from '../../src/engines/sandbox/host.ts';
import { endSandboxes } from '../support/processes.ts';
import { run } from '../support/run.ts';
import { type Login, ssh, sshWell } from '../support/ssh.ts';
import { Bench, numberedKey, rejectsWith } from './engine-contract.ts';
import { makeDataFolder, openSandbox, sandboxOptions } from './sandbox-bench.ts';

const host = await probeHost(sandboxOptions(''));
const hasPerl = (await run('perl', ['-e', '1'])).code === 0;
const skip = host.isolation ? (hasPerl ? false : 'needs perl') : host.notices.join(' ');

/** fcntl(2): F_SETLEASE is 1024, F_WRLCK is 1; a lease is broken by SIGIO, which is ignored here. */
const LEASE_SCRIPT = `
$SIG{IO} = 'IGNORE';
for my $name (@ARGV) { open($f{$name}, '+>>', $name) or die; fcntl($f{$name}, 1024, 1) or die "$!" }
open(OK, '>', "$ENV{HOME}/ok"); close OK; sleep 600;
`;

const DEEP_SCRIPT = `chdir; for (1 .. 3000) { mkdir 'd' x 20; chdir 'd' x 20 or die }`;

/** keyctl(2), add_key(2) and request_key(2) by their numbers on x86_64 and aarch64. */
const KEYRING_SCRIPT = `
my @n = (-e '/lib64/ld-linux-x86-64.so.2') ? (250, 248, 249) : (219, 217, 218);
my ($type, $name, $text) = ('user', 'covert', 'message');
print syscall($n[0], 0, -3, 0), ' ', $!{ENOSYS} ? 1 : 0, "\\n";
print syscall($n[1], $type, $name, $text, 7, -4), ' ', $!{ENOSYS} ? 1 : 0, "\\n";
print syscall($n[2], $type, $name, 0, -4), ' ', $!{ENOSYS} ? 1 : 0, "\\n";
`;

describe('sandbox engine: a guest that makes others wait', { skip }, () => {
  const dataFolder = makeDataFolder();
  const bench = new Bench(() => openSandbox(dataFolder));
  before(() => bench.setUp());
  after(async () => {
    await bench.tearDown();
    endSandboxes(dataFolder);
  });
  describeWaiting(bench, dataFolder);
  describeSharing(bench);
});

function describeWaiting(bench: Bench, dataFolder: string): void {
  it('gives up a snapshot of files under lease, and lets the guest go on', async () => {
    const { machine, login } = await bench.run();
    await holdLeases(login, '~/one ~/two ~/three');
    const begin = performance.now();
    const error = await rejectsWith('guest_conflict', () =>
      bench.engine.createSnapshot(machine.ref, bench.snapshotRef()),
    );
    assert.ok(performance.now() - begin < 35_000);
    assert.match(error.message, /leases/);
    await requireNothingLeft(bench, dataFolder, login);
    await bench.engine.delete(machine.ref);
  });

  it('says that authorized_keys is under lease', async () => {
    const { machine, login } = await bench.run();
    await holdLeases(login, '~/.ssh/authorized_keys');
    const add = () => bench.engine.addKey(machine.ref, { publicKey: numberedKey(1) });
    assert.match((await rejectsWith('guest_conflict', add)).message, /lease/);
    await bench.engine.delete(machine.ref);
  });

  it('says that folders are too deep for a snapshot, and deletes them all the same', async () => {
    const { machine, login } = await bench.run();
    await sshWell(login, `perl -e "${DEEP_SCRIPT}"`);
    const error = await rejectsWith('guest_conflict', () =>
      bench.engine.createSnapshot(machine.ref, bench.snapshotRef()),
    );
    assert.match(error.message, /deep/);
    await requireNothingLeft(bench, dataFolder, login);
    await bench.engine.delete(machine.ref);
    assert.deepEqual(readdirSync(join(dataFolder, 'sandbox/work')), []);
  });

  it('says why a snapshot takes no key, and leaves nothing of the restore', async () => {
    const { machine, login } = await bench.run();
    await sshWell(login, 'ln -sf /etc/passwd ~/.ssh/authorized_keys');
    const snapshotRef = bench.snapshotRef();
    await bench.engine.createSnapshot(machine.ref, snapshotRef);
    const copy = bench.machine();
    const source = { kind: 'snapshot', snapshotRef } as const;
    const keys = [{ publicKey: numberedKey(1) }];
    const error = await rejectsWith('guest_conflict', () =>
      bench.engine.create(copy, source, keys),
    );
    assert.match(error.message, /snapshot .*symbolic link/);
    assert.equal(await bench.engine.inspect(copy.ref), undefined);
    assert.deepEqual(readdirSync(join(dataFolder, 'sandbox/work')), []);
    await bench.engine.delete(machine.ref);
    await bench.engine.deleteSnapshot(snapshotRef);
  });
}

async function holdLeases(login: Login, files: string): Promise<void> {
  await sshWell(login, 'cat > ~/lease.pl', { input: LEASE_SCRIPT });
  const start = `setsid perl ~/lease.pl ${files} > /dev/null 2> ~/why < /dev/null &`;
  const wait =
    'for i in $(seq 100); do [ -e ~/ok ] && exit; sleep 0.05; done; cat ~/why >&2; exit 1';
  await sshWell(login, `${start} ${wait}`);
}

async function requireNothingLeft(bench: Bench, dataFolder: string, login: Login): Promise<void> {
  assert.deepEqual(readdirSync(join(dataFolder, 'sandbox/work')), []);
  assert.deepEqual([...(await bench.engine.inventory()).snapshots], []);
  assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
}

function describeSharing(bench: Bench): void {
  it('has no kernel keyrings, which instances would share', async () => {
    const { machine, login } = await bench.run();
    const tried = await sshWell(login, 'perl -MErrno -', { input: KEYRING_SCRIPT });
    assert.equal(tried, '-1 1\n'.repeat(3));
    assert.notEqual((await ssh(login, 'cat /proc/keys')).code, 0);
    await bench.engine.delete(machine.ref);
  });

  it('gives a port to exactly one of several services that start on it at once', async () => {
    const others = await Promise.all(['one', 'two'].map(() => openSandbox(makeDataFolder())));
    const engines = [bench.engine, ...others.map(({ engine }) => engine)];
    for (let round = 0; round < 6; round += 1) {
      const machine = bench.machine();
      await Promise.all(engines.map((engine) => engine.create(machine, bench.template, [])));
      const outcomes = await Promise.allSettled(engines.map((engine) => engine.start(machine)));
      const refusals = outcomes.flatMap((outcome) =>
        outcome.status === 'rejected' ? [outcome.reason] : [],
      );
      for (const reason of refusals) {
        assert.ok(reason instanceof EngineError && reason.kind === 'port_taken', String(reason));
      }
      const states = await Promise.all(engines.map((engine) => engine.inspect(machine.ref)));
      assert.equal(states.filter((facts) => facts?.state === 'running').length, 1);
      assert.equal(refusals.length, engines.length - 1);
      await Promise.all(engines.map((engine) => engine.delete(machine.ref)));
    }
    for (const { cleanup } of others) await cleanup();
  });
}
