/** What a guest leaves on its disk for the moment of its next start: links, pipes, closed folders. */

import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdtempSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { runCommand } from '../../src/engines/sandbox/commands.ts';
import { probeHost } from '../../src/engines/sandbox/host.ts';
import { isolated, mountPointsInEtc } from '../../src/engines/sandbox/isolation.ts';
import { endSandboxes } from '../support/processes.ts';
import { runWell } from '../support/run.ts';
import { ssh, sshWell } from '../support/ssh.ts';
import { Bench, numberedKey } from './engine-contract.ts';
import { makeDataFolder, openSandbox, sandboxOptions } from './sandbox-bench.ts';

const host = await probeHost(sandboxOptions(''));
const skip = host.isolation ? false : host.notices.join(' ');

/** What to put in place of an entry of /etc, by its name; anyone may write to the folder `victim` of the host. */
const OBSTACLES: readonly (readonly [what: string, script: string])[] = [
  ['a link to the host', 'ln -s /oldroot$victim/made "$name"'],
  ['a link to a folder of the host', 'ln -s /oldroot$victim "$name"'],
  ['a link upwards', 'ln -s ../../../../oldroot$victim/made "$name"'],
  ['a link to the new root', 'ln -s /newroot/home/ubuntu/there "$name"'],
  ['a dangling link', 'ln -s /nowhere/at/all "$name"'],
  ['a loop', 'ln -s "$name" "$name"'],
  ['a FIFO', 'mkfifo "$name"'],
  ['a file', 'echo a > "$name"'],
  ['a folder', 'mkdir -p "$name/full"'],
  ['nothing', ':'],
];

describe('sandbox engine: what lies under its mounts', { skip }, () => {
  const dataFolder = makeDataFolder();
  const bench = new Bench(() => openSandbox(dataFolder));
  before(() => bench.setUp());
  after(async () => {
    await bench.tearDown();
    endSandboxes(dataFolder);
  });
  describeEscapes(bench, dataFolder);
  describeClosedFolders(bench);
});

function describeEscapes(bench: Bench, dataFolder: string): void {
  for (const [what, script] of OBSTACLES) {
    it(`starts and restores with ${what} in place of all that is mounted over`, async () => {
      const victim = makeVictim(dataFolder);
      const machine = await bench.create();
      const instance = join(dataFolder, 'sandbox/instances', machine.ref);
      await replaceAll(join(instance, 'disk/etc'), script, victim);
      const snapshotRef = bench.snapshotRef();
      await bench.engine.createSnapshot(machine.ref, snapshotRef);
      const copy = await bench.create({ kind: 'snapshot', snapshotRef });
      // Whether it comes up or not: an accomplice may put things back behind the engine's repair.
      await runIsolated(instance);
      assert.deepEqual(readdirSync(victim), [], 'without the repair');
      for (const one of [machine, copy]) await requireSound(bench, one);
      assert.deepEqual(readdirSync(victim), []);
      for (const { ref } of [machine, copy]) await bench.engine.delete(ref);
      await bench.engine.deleteSnapshot(snapshotRef);
    });
  }

  it('does not let a guest move what is mounted over its /etc', async () => {
    const { machine, login } = await bench.run();
    for (const { name } of mountPointsInEtc()) {
      assert.notEqual((await ssh(login, `mv /etc/${name} /etc/other`)).code, 0, name);
    }
    await bench.engine.delete(machine.ref);
  });
}

/** A folder of the host that guests of any instance could write to, if they reached it. */
function makeVictim(dataFolder: string): string {
  const victim = mkdtempSync(join(dataFolder, 'victim-'));
  chmodSync(victim, 0o777);
  return victim;
}

/** As a disk may come out of an older snapshot; everything in it belongs to the guest. */
async function replaceAll(etc: string, script: string, victim: string): Promise<void> {
  const names = mountPointsInEtc().map(({ name }) => name);
  const all = `cd "$1"; victim=$2; shift 2; for name; do rm -rf "$name"; ${script}; done`;
  await runWell('/bin/sh', ['-c', all, 'replace', etc, victim, ...names]);
  const { uid, gid } = statSync(etc);
  await runWell('chown', ['-Rh', `${uid}:${gid}`, etc]);
}

async function runIsolated(instance: string): Promise<void> {
  const { bwrap = '', setpriv } = host.tools;
  const { bwrapOptions, users } = host;
  const options = { bwrap, setpriv, bwrapOptions, hostname: 'box', instance };
  for (const name of ['passwd', 'group', 'hostname', 'hosts', 'resolv.conf']) {
    writeFileSync(join(instance, 'system', name), '', { mode: 0o644 });
  }
  const [file = '', ...args] = isolated(options, ['/usr/bin/true']);
  await runCommand(file, args, { identity: users.dropTo, timeoutMs: 10_000 });
}

async function requireSound(bench: Bench, machine: ReturnType<Bench['machine']>): Promise<void> {
  const login = await bench.login(machine);
  const script = 'id -un; hostname; cat /etc/hostname; ls /etc/ssl; touch /etc/passwd /etc/ssl/x';
  const { stdout } = await ssh(login, script);
  const names = [machine.hostname, machine.hostname].join('\n');
  assert.match(stdout, new RegExp(`^ubuntu\n${names}\n`));
  if (existsSync('/etc/ssl/certs')) assert.match(stdout, /^certs$/m);
  const refused = await ssh(login, 'touch /etc/passwd || touch /etc/ssl/x || touch /etc/ssh/x');
  assert.equal(refused.code, 1, 'what the engine mounts is read-only');
}

function describeClosedFolders(bench: Bench): void {
  it('opens what the guest closed on the way to its keys', async () => {
    for (const closed of ['/home', '~', '~/.ssh']) {
      const { machine, login } = await bench.run();
      await sshWell(login, `chmod 000 ${closed}`);
      await bench.engine.addKey(machine.ref, { publicKey: numberedKey(1) });
      assert.match(await sshWell(login, 'cat ~/.ssh/authorized_keys'), / key-1\n$/);
      await bench.engine.delete(machine.ref);
    }
  });

  it('starts though the guest closed its folders', async () => {
    const { machine, login } = await bench.run();
    await sshWell(login, 'chmod 000 /var /tmp /etc');
    await bench.engine.stop(machine.ref);
    await requireSound(bench, machine);
    await bench.engine.delete(machine.ref);
  });
}
