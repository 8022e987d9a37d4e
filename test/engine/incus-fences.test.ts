/** What an instance of the engine cannot do to Incus and the storage pool, whatever root in it tries. */

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import type { MachineSpec } from '../../src/engines/engine.ts';
import { guardRules, guardTable } from '../../src/engines/incus/bridge-guard.ts';
import { guestAddress, guestNames } from '../../src/engines/incus/guest-address.ts';
import { instanceName } from '../../src/engines/incus/names.ts';
import { readBridge } from '../../src/engines/incus/network.ts';
import type { InstanceObject } from '../../src/engines/incus/objects.ts';
import { applyGuard } from '../../src/engines/incus/setup.ts';
import { deniedSyscalls } from '../../src/engines/incus/syscalls.ts';
import { skipIncus } from '../support/incus.ts';
import { runWell } from '../support/run.ts';
import { type Login, sshWell } from '../support/ssh.ts';
import { incusBench } from './incus-bench.ts';

const notPermitted = 1;
const machineCode = { x64: { ioctl: 16 }, arm64: { ioctl: 29 } } as Record<
  string,
  { ioctl: number }
>;

/**
 * Prints the error of each ioctl that is named by its number, in a folder that root owns: 0 where it did something.
 * With `high`, the upper half of the word is no zero; the kernel does not look at it.
 */
const TRY_IOCTLS = `
my ($ioctl, @commands) = @ARGV;
chdir "/root"; open(my $folder, "<", ".") or die;
for my $command (map { hex } @commands) {
  for my $high (0, 0x7700000000) {
    my $old = pack("q Z4088", fileno($folder), "old" . $command);
    my $new = pack("q x48 Z4040", fileno($folder), "new" . $command);
    for my $argument ($old, $new) {
      $! = 0;
      print syscall($ioctl, fileno($folder), $command | $high, $argument) == 0 ? 0 : $! + 0, "\\n";
    }
  }
}
`;

/** A program that asks for a subvolume as one of 32 bits does, in the folder that is its file 3; ends with the error. */
function compatProgram(): Buffer {
  const base = 0x400000;
  const [headers, memory] = [64 + 56, 0x3000];
  const code = Buffer.from(
    [
      'b836000000 bb03000000 b90e940050', // eax: ioctl, ebx: file 3, ecx: BTRFS_IOC_SUBVOL_CREATE
      'ba00104000 c7420861626300', // edx: struct btrfs_ioctl_vol_args, with a name
      'cd80 f7d8 89c3 b801000000 cd80', // exit(-result)
    ]
      .join('')
      .replaceAll(' ', ''),
    'hex',
  );
  const elf = Buffer.alloc(headers);
  elf.write('7f454c46020101', 'hex');
  elf.writeUInt16LE(2, 16); // an executable
  elf.writeUInt16LE(62, 18); // of x86-64
  elf.writeUInt32LE(1, 20);
  elf.writeUInt32LE(base + headers, 24);
  elf.writeUInt32LE(64, 32);
  elf.writeUInt16LE(64, 52);
  elf.writeUInt16LE(56, 54);
  elf.writeUInt16LE(1, 56);
  // All of it in one segment that may be read, written and run.
  elf.writeUInt32LE(1, 64);
  elf.writeUInt32LE(7, 68);
  elf.writeUInt32LE(base, 80);
  elf.writeUInt32LE(base, 88);
  elf.writeUInt32LE(headers + code.length, 96);
  elf.writeUInt32LE(memory, 104);
  elf.writeUInt32LE(0x1000, 112);
  return Buffer.concat([elf, code]);
}

describe('the fences around an instance', { skip: skipIncus }, () => {
  const { bench, opened } = incusBench();
  before(() => bench.setUp());
  after(() => bench.tearDown());

  async function assertFenced(login: Login): Promise<void> {
    const { ioctl } = machineCode[process.arch] ?? assert.fail(process.arch);
    const commands = [...deniedSyscalls.matchAll(/0x\w{8}(?=,SCMP)/g)].map(([command]) => command);
    assert.equal(commands.length, 9);
    const words = `${ioctl} ${commands.join(' ')}`;
    const errors = await sshWell(login, `sudo perl -e '${TRY_IOCTLS}' ${words}`);
    assert.deepEqual(errors, `${notPermitted}\n`.repeat(4 * commands.length));
    assert.equal(await sshWell(login, 'ls /dev | grep -c incus; true'), '0\n');
  }

  it('let nobody make, change or delete subvolumes, and the system is well', async () => {
    const { machine, login } = await bench.run();
    await assertFenced(login);
    const state = await sshWell(login, 'systemctl is-system-running --wait; systemctl --failed');
    assert.match(state, /^running\n/);
    const snapshotRef = bench.snapshotRef();
    await bench.engine.createSnapshot(machine.ref, snapshotRef);
    const copy = await bench.create({ kind: 'snapshot', snapshotRef });
    const restored = await bench.login(copy);
    await assertFenced(restored);
    // Who it is it has to learn without asking Incus.
    const identity = await sshWell(restored, 'hostname; cat /etc/instance-id');
    assert.equal(identity, `${copy.hostname}\n${copy.ref}\n`);
    await bench.engine.deleteSnapshot(snapshotRef);
    for (const { ref } of [machine, copy]) await bench.engine.delete(ref);
  });

  it('hold for programs of 32 bits', { skip: process.arch !== 'x64' }, async () => {
    const { machine, login } = await bench.run();
    const program = compatProgram().toString('base64');
    await sshWell(login, `echo ${program} | base64 -d > program; chmod +x program`);
    const code = await sshWell(login, `sudo sh -c './program 3< .'; echo $?`);
    // The other one is of a kernel that runs no such programs.
    assert.ok([`${notPermitted}\n`, '139\n'].includes(code), code);
    await bench.engine.delete(machine.ref);
  });

  it('are put up again at the next start where they are missing', async () => {
    const { engine } = bench;
    const machine = await bench.create();
    const { client, project } = opened().place;
    const path = `/1.0/instances/${instanceName(machine.ref)}`;
    const gone = { 'security.syscalls.deny': '', 'security.guestapi': 'true' };
    await client.change('PATCH', path, { config: gone }, { project });
    await assertFenced(await bench.login(machine));
    const { config } = await client.get<InstanceObject>(path, { project });
    assert.equal(config['security.guestapi'], 'false');
    await engine.delete(machine.ref);
  });

  const portOf = async ({ sshPort }: MachineSpec) => {
    const { place, options } = opened();
    const bridge = await readBridge(place.client, place.network);
    const { port } = guestNames(guestAddress(bridge, sshPort, options.sshPorts));
    return { bridge, port };
  };

  it('do not fall over the port of a guest that a killed Incus left behind', async () => {
    const machine = await bench.create();
    const { port } = await portOf(machine);
    await runWell('ip', ['link', 'add', 'dev', port, 'type', 'veth']);
    const index = readFileSync(`/sys/class/net/${port}/ifindex`, 'utf8');
    const login = await bench.login(machine);
    assert.equal(await sshWell(login, 'id -un'), 'ubuntu\n');
    assert.notEqual(readFileSync(`/sys/class/net/${port}/ifindex`, 'utf8'), index);
    await bench.engine.delete(machine.ref);
  });

  it('reach and are reached by another port where nobody may remove the one in the way', async () => {
    const machine = await bench.create();
    const { bridge, port } = await portOf(machine);
    // Its other end looks as if it were in a guest.
    const namespace = `${port}-test`;
    await runWell('ip', ['netns', 'add', namespace]);
    try {
      const peer = ['peer', 'name', 'eth0', 'netns', namespace];
      await runWell('ip', ['link', 'add', 'dev', port, 'type', 'veth', ...peer]);
      await applyGuard(guardRules(bridge, opened().options.sshPorts));
      assert.equal(await sshWell(await bench.login(machine), 'id -un'), 'ubuntu\n');
      assert.ok(existsSync(`/sys/class/net/${port}-1`));
    } finally {
      await runWell('ip', ['netns', 'delete', namespace]);
      for (const family of ['bridge', 'inet'])
        await runWell('nft', ['delete', 'table', family, guardTable(bridge)]);
    }
    await bench.engine.delete(machine.ref);
  });
});
