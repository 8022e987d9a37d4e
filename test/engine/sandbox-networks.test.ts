/** Published ports with either kind of network, whichever the rest of the suite is run for. */

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it, test } from 'node:test';
import { promisify } from 'node:util';
import { probeHost } from '../../src/engines/sandbox/host.ts';
import { fetchText, openRequest, serveInGuest } from '../support/guest-server.ts';
import { claimPorts } from '../support/ports.ts';
import {
  endProcess,
  endSandboxes,
  networkHelpersOf,
  sandboxProcesses,
} from '../support/processes.ts';
import { sshWell } from '../support/ssh.ts';
import { eventually, eventuallyPasses } from '../support/waiting.ts';
import { Bench } from './engine-contract.ts';
import { describePublishedPorts } from './published-ports.ts';
import { makeDataFolder, openSandbox, sandboxOptions } from './sandbox-bench.ts';

const SECRET = 'BERTH_TEST_SECRET';
process.env[SECRET] = 'never-in-a-helper';
const host = await probeHost({ ...sandboxOptions(''), network: 'auto' });
const noLogins = !host.isolation || host.tools.sshd === undefined ? host.notices.join(' ') : false;
const noOwnNetwork = host.ownNetwork
  ? false
  : `no networks of their own: ${host.notices.join(' ')}`;

function describeWith(network: 'auto' | 'host', skip: string | false): void {
  const name = network === 'auto' ? 'networks of their own' : "the host's network";
  describe(name, () => {
    if (skip !== false) return void it('cannot be tested here', { skip }, () => {});
    const bench = new Bench(() => openSandbox(makeDataFolder(), { network }));
    before(() => bench.setUp());
    after(() => bench.tearDown());
    describePublishedPorts(bench);
    if (network === 'auto') describeOwnNetwork(bench);
  });
}

function describeOwnNetwork(bench: Bench): void {
  const ports = async (count: number): Promise<number[]> => {
    const { from } = await claimPorts(count);
    return Array.from({ length: count }, (_, index) => from + index);
  };
  const helpers = () => networkHelpersOf(process.pid);
  const noHelper = () => eventually('no helper', 10_000, () => helpers().length === 0 || undefined);

  it('publishes ports, and reaches servers wherever they listen', async () => {
    assert.equal(bench.engine.capabilities.ownNetwork, true);
    assert.equal(bench.engine.capabilities.publishesPorts, true);
    const { machine, login } = await bench.run();
    assert.equal(await sshWell(login, 'echo $BERTH_ADDRESS'), '127.0.0.1\n');
    const findOwn =
      "perl -ne '/^\\s+\\|-- (\\S+)/ and $a = $1; /32 host LOCAL/ and print $a, qq(\\n)'";
    const locals = (await sshWell(login, `${findOwn} /proc/net/fib_trie`)).split('\n');
    const own = locals.find((address) => address !== '' && !address.startsWith('127.')) ?? '';
    assert.match(own, /^\d+\.\d+\.\d+\.\d+$/);
    const addresses = ['127.0.0.1', '0.0.0.0', own];
    const httpPorts = await ports(addresses.length);
    await bench.engine.configure({ ...machine, httpPorts });
    for (const [index, address] of addresses.entries()) {
      const port = httpPorts[index] ?? 0;
      await serveInGuest(login, port, { body: address, address });
      assert.equal(await fetchText(login.host, port), address);
    }
    await bench.engine.delete(machine.ref);
  });

  it('carries all of one side after the other has said all', async () => {
    const { machine, login } = await bench.run();
    const [port = 0] = await ports(1);
    const answer = `socket(S, 2, 1, 0); bind(S, pack("S n N x8", 2, ${port}, 0)) or die; listen(S, 5);
      open(R, ">", "/tmp/listening"); close R; accept(C, S); print C "hello"; $| = 1;
      select(C); $| = 1; while (read(C, $b, 9999)) { $n += length $b } print C $n, "x" x 3000000; close C;
      accept(C, S); shutdown(C, 1); $n = 0; while (read(C, $b, 9999)) { $n += length $b }
      open(R, ">", "/tmp/heard"); print R $n; close R; rename("/tmp/heard", "/tmp/counted");`;
    await sshWell(
      login,
      `nohup perl -e '${answer}' > /dev/null 2>&1 < /dev/null &
      until test -e /tmp/listening; do sleep 0.02; done`,
    );
    await bench.engine.configure({ ...machine, httpPorts: [port] });
    const visitor = connect({ host: login.host, port, allowHalfOpen: true });
    visitor.end('x'.repeat(100_000));
    let text = '';
    for await (const chunk of visitor) text += chunk;
    assert.equal(text.length, 'hello100000'.length + 3_000_000);
    assert.match(text.slice(0, 20), /^hello100000x+$/);
    const other = connect({ host: login.host, port, allowHalfOpen: true }).resume();
    await once(other, 'end');
    other.end('x'.repeat(200_000));
    const counted = 'until test -e /tmp/counted; do sleep 0.02; done; cat /tmp/counted';
    assert.equal(await sshWell(login, counted), '200000');
    await bench.engine.delete(machine.ref);
  });

  it('has one helper while there are ports, without rights or secrets; another when it ends', async () => {
    const [one = 0, two = 0] = await ports(2);
    const { machine, login } = await bench.run();
    await serveInGuest(login, one, { body: 'one', hold: true });
    await serveInGuest(login, two, { body: 'two' });
    assert.deepEqual(helpers(), []);
    await bench.engine.configure({ ...machine, httpPorts: [one, two] });
    const [helper, ...others] = helpers();
    assert.ok(helper !== undefined && others.length === 0);
    const read = (name: string) => readFileSync(`/proc/${helper.pid}/${name}`, 'latin1');
    assert.doesNotMatch(read('environ'), new RegExp(SECRET));
    assert.match(read('status'), /^CapPrm:\t0+\nCapEff:\t0+\nCapBnd:\t0+\n/m);
    if (host.users.dropTo)
      assert.match(read('status'), new RegExp(`^Uid:\t${host.users.dropTo.uid}\t`, 'm'));
    const open = await openRequest(login.host, one);
    endProcess(helper.pid);
    await noHelper();
    await eventuallyPasses(10_000, async () =>
      assert.equal(await fetchText(login.host, two), 'two'),
    );
    assert.equal(open.readyState, 'open');
    assert.equal(helpers().length, 1);
    open.destroy();
    await bench.engine.configure(machine);
    await noHelper();
    await bench.engine.configure({ ...machine, httpPorts: [one] });
    assert.equal(helpers().length, 1);
    await bench.engine.delete(machine.ref);
    await noHelper();
  });
}

/** A user of this host other than root who may read the tests and run node; or why there is none. */
function findOrdinaryUser(): { uid: number; gid: number } | string {
  if (process.getuid?.() !== 0) return 'only root can act as somebody else';
  const line = /^nobody:[^:]*:(\d+):(\d+):/m.exec(readFileSync('/etc/passwd', 'utf8'));
  if (line === null) return 'there is no user nobody';
  const user = { uid: Number(line[1]), gid: Number(line[2]) };
  const read = `require('node:fs').readFileSync(${JSON.stringify(ordinaryScript)})`;
  const tried = spawnSync(process.execPath, ['-e', read], { ...user, cwd: '/' });
  return tried.status === 0 ? user : 'this folder is closed to other users';
}

const ordinaryScript = join(import.meta.dirname, 'ordinary-user-process.ts');
const ordinary = findOrdinaryUser();
const skip = noLogins || (typeof ordinary === 'string' && ordinary);
test('a service of an ordinary user publishes, adopts and ends', { skip }, async () => {
  assert.ok(typeof ordinary === 'object');
  const dataFolder = makeDataFolder();
  chownSync(dataFolder, ordinary.uid, ordinary.gid);
  const { from } = await claimPorts(2);
  const words = [ordinaryScript, dataFolder, String(from), String(from + 1)];
  try {
    const options = { ...ordinary, cwd: '/', timeout: 60_000 };
    await promisify(execFile)(process.execPath, words, options);
    assert.deepEqual(sandboxProcesses(dataFolder), []);
  } finally {
    endSandboxes(dataFolder);
  }
});

describeWith('host', noLogins);
describeWith('auto', noLogins || noOwnNetwork);
