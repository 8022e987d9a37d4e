/** A service that crashes, or that somebody signals, shows nobody its tokens and the private keys it has made. */

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { engineUnderTest } from '../support/incus.ts';
import { sandboxProcesses } from '../support/processes.ts';
import { run } from '../support/run.ts';
import { filesBelow, tracesOf } from '../support/secrets.ts';

/** As on a host that keeps cores: with everything in them, as large as they come, in a folder that may be written. */
const keepingCores =
  'ulimit -S -c unlimited; echo 0x33 > /proc/self/coredump_filter; cd "$0" && exec "$@"';

const folder = mkdtempSync(join(tmpdir(), 'berth-cores-'));
const house = await openHouse({ under: ['/bin/sh', '-c', keepingCores, folder] });
after(async () => {
  await house.dispose();
  rmSync(folder, { recursive: true, force: true });
});
const { api, service } = house;
const main = await house.machine();
const proc = (pid: number | undefined, name: string) =>
  readFileSync(`/proc/${pid}/${name}`, 'utf8');

test('the service asks for no core, for nothing in one, and for no debugger', async () => {
  const { pid } = service;
  assert.match(proc(pid, 'limits'), /^Max core file size +0 /m);
  assert.equal(Number.parseInt(proc(pid, 'coredump_filter'), 16), 0);
  const caught = /^SigCgt:\s*([0-9a-f]+)$/m.exec(proc(pid, 'status'))?.[1] ?? '';
  assert.equal((BigInt(`0x${caught}`) >> 9n) & 1n, 0n, 'Node opens its inspector at SIGUSR1');
  process.kill(pid ?? 0, 'SIGUSR1');
  await api.instances();
});

test('guests have cores as the kernel makes them', {
  skip: engineUnderTest !== 'sandbox' && 'guests of this engine are not started by the service',
}, () => {
  const own = readlinkSync('/proc/self/ns/pid');
  const inside = sandboxProcesses(service.dataFolder).filter(
    (found) => found.pidNamespace !== own && /^\S*sshd/.test(found.command),
  );
  assert.ok(inside.length > 0);
  for (const { pid } of inside) assert.equal(proc(pid, 'coredump_filter').trim(), '00000033');
});

test('a core that is dumped all the same holds no token and no private key', {
  skip: reasonToSkipCores(),
}, async () => {
  const { key } = await api.addKey(main.id);
  const raised = await run('prlimit', ['--pid', `${service.pid}`, '--core=unlimited:unlimited']);
  assert.equal(raised.code, 0, raised.stderr);
  process.kill(service.pid ?? 0, 'SIGABRT');
  assert.equal((await service.waitForExit()).signal, 'SIGABRT');
  const cores = filesBelow(folder);
  assert.match(cores.join(), /\/core/, 'there is one to look into');
  for (const core of cores) assert.ok(statSync(core).size < 2_000_000, 'the memory alone is more');
  const dumped = cores.map(memoryIn);
  for (const secret of [api.token, 'PRIVATE KEY', ...tracesOf(key)])
    assert.ok(!dumped.some((memory) => memory.includes(secret)), secret.slice(0, 12));
});

/** What follows the notes of a core (elf(5), 64 bits), in which the kernel puts the registers of each thread. */
function memoryIn(core: string): Buffer {
  const content = readFileSync(core);
  const notes = Number(content.readBigUInt64LE(32));
  assert.equal(content.readUInt32LE(notes), 4, 'the notes are described first');
  const at = [8, 32].map((offset) => Number(content.readBigUInt64LE(notes + offset)));
  return content.subarray((at[0] ?? 0) + (at[1] ?? 0));
}

function reasonToSkipCores(): string | false {
  const pattern = readFileSync('/proc/sys/kernel/core_pattern', 'utf8').trim();
  if (/^[^|/]+$/.test(pattern)) return false;
  const reason = `this host puts cores elsewhere (${pattern})`;
  console.error(`SKIPPING CORES: ${reason}`);
  return reason;
}
