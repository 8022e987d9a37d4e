/** Races that a hostile guest, a full disk or a killed service bring about. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { probeHost } from '../../src/engines/sandbox/host.ts';
import { endSandboxes, sandboxProcesses } from '../support/processes.ts';
import { run } from '../support/run.ts';
import { OpenSession, sshWell } from '../support/ssh.ts';
import { eventually } from '../support/waiting.ts';
import { Bench, numberedKey, rejectsWith } from './engine-contract.ts';
import { makeDataFolder, openSandbox, sandboxOptions } from './sandbox-bench.ts';

const host = await probeHost(sandboxOptions(''));
const skip = host.isolation ? false : host.notices.join(' ');

const ADDS = 300;

/** renameat2(2) with RENAME_EXCHANGE: there is always a ~/.ssh, and half of the time it is the link. */
const EXCHANGE_SCRIPT = `
cd ~; ln -s $1 other
perl -e '
  my ($one, $two) = (".ssh", "other");
  my $call = (-e "/lib64/ld-linux-x86-64.so.2") ? 316 : 276;
  until (-e "enough") {
    for (1, 2) { syscall($call, -100, $one, -100, $two, 2); select(undef, undef, undef, 0.0007); }
  }
'
rm enough
`;

const OBSTACLE_SCRIPT = `
cd ~
while [ ! -e enough ]; do
  mv .ssh kept; ln -s $1 .ssh; rm .ssh; ln -s / .ssh; rm .ssh; mkfifo .ssh; rm .ssh
  mkdir .ssh; ln -s $1/authorized_keys .ssh; rm -rf .ssh; mv kept .ssh
  ln -sf $1/authorized_keys .ssh/authorized_keys; rm .ssh/authorized_keys
  mkfifo .ssh/authorized_keys; rm .ssh/authorized_keys; mkdir .ssh/authorized_keys; rm -r .ssh/*
  ln -s $1/authorized_keys .ssh/.authorized_keys.new; rm -f .ssh/.authorized_keys.new
done
rm enough
`;

describe('sandbox engine: races', { skip }, () => {
  const dataFolder = makeDataFolder();
  const bench = new Bench(() => openSandbox(dataFolder));
  before(() => bench.setUp());
  after(async () => {
    await bench.tearDown();
    endSandboxes(dataFolder);
  });

  it('loses no acknowledged key while a guest exchanges ~/.ssh with a link to a folder of the host', async () => {
    const { landed, session, ref } = await addDuring(bench, dataFolder, EXCHANGE_SCRIPT);
    const lines = (await session.do('cat ~/.ssh/authorized_keys')).split('\n');
    for (const number of landed) assert.ok(lines.includes(numberedKey(number)), `key ${number}`);
    assert.ok(landed.length > 0 && landed.length < ADDS, `${landed.length} of ${ADDS} landed`);
    await bench.engine.delete(ref);
    await session.close();
  });

  it('changes nothing outside and waits for nobody while a guest puts one thing after the other in the way', async () => {
    const { session, ref } = await addDuring(bench, dataFolder, OBSTACLE_SCRIPT);
    await bench.engine.delete(ref);
    await session.close();
  });

  it('lets a guest go on when the service is killed in the middle of a snapshot', async () => {
    const { machine, login } = await bench.run();
    await sshWell(login, 'head -c 400M /dev/urandom > ~/big; sleep 100 > /dev/null 2>&1 &');
    await eventually('a big file', 20_000, async () =>
      (await sshWell(login, 'stat -c %s ~/big')) === '419430400\n' ? true : undefined,
    );
    const service = startSnapshot(dataFolder, machine.ref);
    const stopped = () => guestStates(dataFolder).filter((state) => state === 'T').length;
    await eventually('a paused guest', 20_000, () => (stopped() > 0 ? true : undefined), 1);
    service.kill('SIGKILL');
    await once(service, 'exit');
    await eventually('a guest that goes on', 2_000, () => (stopped() === 0 ? true : undefined));
    assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    const { engine } = await openSandbox(dataFolder);
    assert.deepEqual(readdirSync(join(dataFolder, 'sandbox', 'work')), []);
    assert.deepEqual([...(await engine.inventory()).snapshots], []);
    await bench.engine.delete(machine.ref);
  });
});

describe('sandbox engine: a full disk', { skip: skip || mountRefusal() }, () => {
  it('says so, keeps what was there and leaves nothing half-done', async () => {
    const small = makeDataFolder();
    const dataFolder = join(small, 'data');
    const mounted = ['-t', 'tmpfs', '-o', 'size=12m,mode=0711', 'tmpfs', small];
    assert.equal((await run('mount', mounted)).code, 0);
    const bench = new Bench(() => openSandbox(dataFolder));
    await bench.setUp();
    try {
      const { machine, login } = await bench.run();
      await sshWell(login, 'head -c 8M /dev/urandom > ~/big');
      await rejectsWith('no_space', () => bench.engine.createSnapshot(machine.ref, 'snapshot'));
      assert.deepEqual(readdirSync(join(dataFolder, 'sandbox', 'work')), []);
      await sshWell(login, 'cat /dev/zero > ~/rest 2>/dev/null; true');
      const before = await bench.engine.readKeys(machine.ref);
      const publicKey = numberedKey(1);
      await rejectsWith('no_space', () => bench.engine.addKey(machine.ref, { publicKey }));
      assert.equal(await bench.engine.readKeys(machine.ref), before);
      assert.equal(await sshWell(login, 'ls -A ~/.ssh'), 'authorized_keys\n');
      await bench.engine.delete(machine.ref);
    } finally {
      await bench.tearDown();
      endSandboxes(dataFolder);
      await run('umount', [small]);
      rmSync(small, { recursive: true });
    }
  });
});

function mountRefusal(): string | false {
  return process.getuid?.() === 0 ? false : 'needs root, to mount a small file system';
}

/** Adds keys while the guest runs a script with the path of a host's folder; what landed. */
async function addDuring(
  bench: Bench,
  dataFolder: string,
  script: string,
): Promise<{ landed: number[]; session: OpenSession; ref: string }> {
  const { machine, login } = await bench.run();
  const victim = mkdtempSync(join(dataFolder, 'victim-'));
  chmodSync(victim, 0o777);
  writeFileSync(join(victim, 'authorized_keys'), 'of the host\n');
  chmodSync(join(victim, 'authorized_keys'), 0o666);
  const session = await OpenSession.open(login, join(bench.folder, machine.ref));
  const start = `cat > ~/script; setsid bash ~/script ${victim} > /dev/null 2>&1 < /dev/null &`;
  await session.do(start, { input: script });
  const landed: number[] = [];
  for (let number = 1; number <= ADDS; number += 1) {
    if (await addsInTime(bench, machine.ref, number)) landed.push(number);
  }
  await session.do(
    'touch ~/enough; for i in $(seq 200); do [ -e ~/enough ] || exit 0; sleep 0.02; done; exit 1',
  );
  assert.deepEqual(readdirSync(victim), ['authorized_keys']);
  assert.equal(readFileSync(join(victim, 'authorized_keys'), 'utf8'), 'of the host\n');
  return { landed, session, ref: machine.ref };
}

async function addsInTime(bench: Bench, ref: string, number: number): Promise<boolean> {
  const begin = performance.now();
  const add = () => bench.engine.addKey(ref, { publicKey: numberedKey(number) });
  const landed = await add().then(
    () => true,
    async (error: unknown) => {
      await rejectsWith('guest_conflict', () => Promise.reject(error));
      return false;
    },
  );
  assert.ok(performance.now() - begin < 2_000);
  return landed;
}

function startSnapshot(dataFolder: string, ref: string): ChildProcess {
  const script = join(import.meta.dirname, 'snapshot-process.ts');
  return spawn(process.execPath, [script, dataFolder, ref, 'never-ready'], { stdio: 'inherit' });
}

function guestStates(dataFolder: string): string[] {
  return sandboxProcesses(dataFolder).map((found) => found.state);
}
