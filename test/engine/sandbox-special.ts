/** What the sandbox engine promises beyond the contract: isolation, adoption, nothing left behind. */

import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { endSandboxes, sandboxProcesses } from '../support/processes.ts';
import { ssh, sshWell } from '../support/ssh.ts';
import { eventually, eventuallyPasses } from '../support/waiting.ts';
import { Bench, numberedKey, rejectsWith } from './engine-contract.ts';
import { makeDataFolder, openSandbox } from './sandbox-bench.ts';

const SECRET = 'BERTH_TEST_SECRET';

export function describeSandbox(): void {
  const dataFolder = makeDataFolder();
  describe('sandbox engine', () => {
    process.env[SECRET] = 'never-in-a-guest';
    const bench = new Bench(() => openSandbox(dataFolder));
    before(() => bench.setUp());
    after(async () => {
      await bench.tearDown();
      endSandboxes(dataFolder);
    });
    describeIsolation(bench, dataFolder);
    describeProcesses(bench, dataFolder);
    describeRecovery(bench, dataFolder);
    describePlaces(bench);
  });
}

function describeIsolation(bench: Bench, dataFolder: string): void {
  it('shows a guest nothing of the host and of its neighbour', async () => {
    const [one, two] = [await bench.run(), await bench.run()];
    await sshWell(two.login, 'echo private > ~/private; sleep 60 > /dev/null 2>&1 &');
    const tree = (await ssh(one.login, 'ls -1 / /home /root')).stdout;
    assert.doesNotMatch(tree, /^(boot|root|opt|srv|sys|work|mnt|media)$/m);
    assert.match(tree, /^ubuntu$/m);
    const reach = `ls ${dataFolder} /proc/1/root/${dataFolder}; cat /etc/shadow; ls /proc/1/cwd/..`;
    assert.doesNotMatch((await ssh(one.login, reach)).stdout, /sandbox|private|root:/);
    const processes = await sshWell(one.login, 'cat /proc/[0-9]*/cmdline | tr "\\0" " "');
    assert.doesNotMatch(processes, /sleep 60|bwrap|node/);
    const variables = await sshWell(one.login, 'cat /proc/[0-9]*/environ 2>/dev/null; env');
    assert.doesNotMatch(variables, new RegExp(SECRET));
    assert.equal((await ssh(one.login, 'unshare --user true')).code === 0, false);
    assert.equal((await ssh(one.login, 'touch /x || touch /usr/x || touch /etc/passwd')).code, 1);
    for (const { machine } of [one, two]) await bench.engine.delete(machine.ref);
  });

  it('runs no process of a guest as root, and none with a file of the host open', async () => {
    const { machine, login } = await bench.run();
    await sshWell(login, 'sleep 60 > /dev/null 2>&1 &');
    for (const { pid } of sandboxProcesses(dataFolder)) {
      assert.doesNotMatch(statusOf(pid), /^Uid:.*\t0\b/m);
    }
    const open = await sshWell(login, 'readlink /proc/1/fd/*');
    for (const path of open.trimEnd().split('\n')) {
      assert.match(path, /^(\/dev\/null|\/run\/sshd\.log|socket:\[\d+\])$/);
    }
    await bench.engine.delete(machine.ref);
  });
}

function describeProcesses(bench: Bench, dataFolder: string): void {
  it('leaves no process, mount or file after stop and delete', async () => {
    const { machine, login } = await bench.run();
    const stubborn = 'trap "" TERM HUP; while :; do sleep 1; done';
    await sshWell(login, `setsid bash -c '${stubborn}' > /dev/null 2>&1 < /dev/null &`);
    await sshWell(login, 'mkdir -p ~/a/b && touch ~/a/b/c && chmod 000 ~/a/b ~/a');
    await bench.engine.stop(machine.ref);
    assert.deepEqual(pidsOf(dataFolder), []);
    await bench.engine.delete(machine.ref);
    const folders = ['instances', 'snapshots', 'work'].map((name) =>
      readdirSync(join(dataFolder, 'sandbox', name)),
    );
    assert.deepEqual(folders, [[], [], []]);
  });

  it('notices that sshd was killed, or what is around it, and starts it again', async () => {
    const { machine } = await bench.run();
    for (const inside of [true, false]) {
      const { outside, within } = await settled(dataFolder);
      process.kill(inside ? within : outside, 'SIGKILL');
      await eventually('the end of all of it', 2_000, () =>
        sandboxProcesses(dataFolder).length === 0 ? true : undefined,
      );
      await eventuallyPasses(2_000, async () =>
        assert.deepEqual(await bench.engine.inspect(machine.ref), { state: 'stopped' }),
      );
      assert.equal(await sshWell(await bench.login(machine), 'id -un'), 'ubuntu\n');
    }
    await bench.engine.delete(machine.ref);
  });

  it('does not let a guest kill or stop its sshd for good', async () => {
    const { machine, login } = await bench.run();
    await ssh(login, 'kill -KILL 1; kill -STOP 1; kill -KILL -1');
    assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    await bench.engine.delete(machine.ref);
  });

  it('says that the port is taken', async () => {
    const machine = await bench.create();
    const server = createServer().listen(machine.sshPort, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    await rejectsWith('port_taken', () => bench.engine.start(machine));
    await new Promise((resolve) => server.close(resolve));
    assert.deepEqual(await bench.engine.inspect(machine.ref), { state: 'stopped' });
    await bench.engine.start(machine);
    await bench.engine.delete(machine.ref);
  });

  it('takes a snapshot of files that the guest closed, and while processes multiply', async () => {
    const { machine, login } = await bench.run();
    await sshWell(
      login,
      'mkdir ~/closed; echo content > ~/closed/file; chmod 000 ~/closed/* ~/closed',
    );
    const storm = 'end=$((SECONDS+20)); while [ $SECONDS -lt $end ]; do (: &) ; done';
    await sshWell(login, `setsid bash -c '${storm}' > /dev/null 2>&1 < /dev/null &`);
    const snapshotRef = bench.snapshotRef();
    await bench.engine.createSnapshot(machine.ref, snapshotRef);
    await bench.engine.delete(machine.ref);
    const copy = await bench.create({ kind: 'snapshot', snapshotRef });
    const read = 'stat -c %a ~/closed; chmod 700 ~/closed; chmod 600 ~/closed/*; cat ~/closed/file';
    assert.equal(await sshWell(await bench.login(copy), read), '0\ncontent\n');
    await bench.engine.deleteSnapshot(snapshotRef);
    await bench.engine.delete(copy.ref);
  });

  it('leaves no descriptor open', async () => {
    const { engine } = bench;
    const machine = await bench.create();
    await engine.addKey(machine.ref, { publicKey: numberedKey(0) });
    const before = readdirSync('/proc/self/fd').length;
    for (let number = 1; number <= 1_000; number += 1) {
      const publicKey = numberedKey(number % 10);
      if (number % 20 < 10) await engine.addKey(machine.ref, { publicKey });
      else await engine.removeKey(machine.ref, { kind: 'key', publicKey });
    }
    assert.ok(readdirSync('/proc/self/fd').length <= before);
    await engine.delete(machine.ref);
  });
}

/** Empty when the process has ended meanwhile. */
function statusOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return '';
  }
}

function pidsOf(dataFolder: string): number[] {
  return sandboxProcesses(dataFolder).map((found) => found.pid);
}

/** The two ends of the one instance that runs idle: the launcher, and sshd in its sandbox. */
function settled(dataFolder: string): Promise<{ outside: number; within: number }> {
  const own = readlinkSync('/proc/self/ns/pid');
  return eventually('one idle instance', 5_000, () => {
    const found = sandboxProcesses(dataFolder);
    const launchers = found.filter(
      (entry) => entry.pidNamespace === own && entry.command.includes(dataFolder),
    );
    const servers = found.filter((entry) => entry.command.startsWith('sshd'));
    const [[launcher, ...doubled], [server, ...sessions]] = [launchers, servers];
    if (launcher === undefined || server === undefined) return undefined;
    if (doubled.length + sessions.length > 0) return undefined;
    return { outside: launcher.pid, within: server.pid };
  });
}

function describeRecovery(bench: Bench, dataFolder: string): void {
  it('adopts what runs and sweeps what is half-done when it opens again', async () => {
    const { machine, login } = await bench.run();
    const before = await settled(dataFolder);
    mkdirSync(join(dataFolder, 'sandbox', 'work', 'half-done', 'system', 'ssh'), {
      recursive: true,
    });
    const { engine } = await openSandbox(dataFolder);
    assert.deepEqual(readdirSync(join(dataFolder, 'sandbox', 'work')), []);
    const endpoint = { ip: login.host, port: login.port };
    assert.deepEqual(await engine.inspect(machine.ref), { state: 'running', endpoint });
    assert.deepEqual(await engine.start(machine), endpoint);
    assert.deepEqual(await settled(dataFolder), before);
    await engine.stop(machine.ref);
    assert.deepEqual(await bench.engine.inspect(machine.ref), { state: 'stopped' });
    await bench.engine.delete(machine.ref);
  });

  it('refuses to hold what no file system name may be', async () => {
    for (const ref of ['../up', '.', '..', '', 'a/b', '-rf', 'x'.repeat(200)]) {
      await rejectsWith('failed', () => bench.engine.stop(ref));
      await rejectsWith('failed', () => bench.engine.deleteSnapshot(ref));
    }
  });
}

function describePlaces(bench: Bench): void {
  const skip = process.getuid?.() === 0 ? false : 'only a service that is root has such a folder';
  it('keeps its disks where their user can reach them', { skip }, async () => {
    const closed = join(bench.folder, 'closed', 'data');
    mkdirSync(closed, { recursive: true });
    chmodSync(bench.folder, 0o700);
    const { engine, cleanup } = await openSandbox(closed);
    const place = realpathSync(join(closed, 'sandbox'));
    try {
      assert.match(place, /^\/var\/lib\/berth-sandbox\//);
      assert.ok((await engine.health()).notices.some((notice) => notice.includes(place)));
      const machine = bench.machine();
      await engine.create(machine, bench.template, [{ publicKey: bench.key.publicKey }]);
      const { ip, port } = await engine.start(machine);
      const login = { host: ip, port, keyFile: bench.key.keyFile };
      assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    } finally {
      await cleanup();
      rmSync(place, { recursive: true });
    }
    assert.equal(existsSync(closed), false);
  });
}
