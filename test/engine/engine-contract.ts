/** What every engine has to do. Run on each of them, with the system's own SSH client as the judge. */

import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  type DiskSource,
  type Engine,
  EngineError,
  type EngineErrorKind,
  type EngineRef,
  type MachineSpec,
} from '../../src/engines/engine.ts';
import { type KeyPair, makeKeyPair } from '../support/keys.ts';
import { claimPorts, type PortRange } from '../support/ports.ts';
import { runWell } from '../support/run.ts';
import { hostKeys, isDenied, type Login, scp, sftp, ssh, sshWell } from '../support/ssh.ts';
import { describeHostileGuest } from './hostile-guest.ts';
import { describePublishedPorts } from './published-ports.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

export interface OpenedEngine {
  readonly engine: Engine;
  readonly cleanup: () => Promise<void>;
}

/** A numbered public key that nobody holds the private half of. */
export function numberedKey(number: number): string {
  const blob = Buffer.alloc(51);
  blob.writeUInt32BE(11, 0);
  blob.write('ssh-ed25519', 4);
  blob.writeUInt32BE(32, 15);
  blob.writeUInt32BE(number, 19);
  return `ssh-ed25519 ${blob.toString('base64')} key-${number}`;
}

export async function rejectsWith(
  kind: EngineErrorKind,
  work: () => Promise<unknown>,
): Promise<EngineError> {
  const error = await work().then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof EngineError, `not an EngineError: ${String(error)}`);
  assert.equal(error.kind, kind, `${error.message} ${error.detail}`);
  assert.doesNotMatch(error.message, /\/proc\/|\/tmp\/|sandbox\//, 'a host path is in the message');
  return error;
}

/** An engine under test, with a key pair and free ports at hand. */
export class Bench {
  readonly folder = makeTemporaryFolder('engine-test-');
  private opened: OpenedEngine | undefined;
  private pair: KeyPair | undefined;
  private nextPort = 0;
  private count = 0;
  private readonly open: (ports: PortRange) => Promise<OpenedEngine>;

  constructor(open: (ports: PortRange) => Promise<OpenedEngine>) {
    this.open = open;
  }

  get engine(): Engine {
    assert.ok(this.opened);
    return this.opened.engine;
  }

  get key(): KeyPair {
    assert.ok(this.pair);
    return this.pair;
  }

  async setUp(): Promise<void> {
    this.pair = await makeKeyPair(this.folder);
    const ports = await claimPorts(90);
    this.nextPort = ports.from;
    this.opened = await this.open(ports);
  }

  async tearDown(): Promise<void> {
    await this.opened?.cleanup();
    rmSync(this.folder, { recursive: true, force: true });
  }

  machine(): MachineSpec {
    this.count += 1;
    this.nextPort += 1;
    const ref = `test-${process.pid}-${this.count}`;
    const sizes = { cpuCores: 1, memoryGb: 1, diskSizeGb: 10 };
    const ports = { sshPort: this.nextPort, httpPorts: [] };
    const place = { orgId: 'test', host: undefined, gpus: [] };
    return { ref, hostname: `box-${this.count}`, ...sizes, ...ports, ...place };
  }

  snapshotRef(): EngineRef {
    this.count += 1;
    return `snapshot-${process.pid}-${this.count}`;
  }

  get template(): DiskSource {
    return { kind: 'template', template: this.engine.capabilities.templates[0] ?? '' };
  }

  async create(source: DiskSource = this.template): Promise<MachineSpec> {
    const machine = this.machine();
    const keys = source.kind === 'template' ? [{ publicKey: this.key.publicKey }] : [];
    await this.engine.create(machine, source, keys);
    return machine;
  }

  async login(machine: MachineSpec): Promise<Login> {
    const { ip, port } = await this.engine.start(machine);
    return { host: ip, port, keyFile: this.key.keyFile };
  }

  /** A running instance and how to log in to it. */
  async run(): Promise<{ machine: MachineSpec; login: Login }> {
    const machine = await this.create();
    return { machine, login: await this.login(machine) };
  }
}

export function describeEngine(
  name: string,
  open: (ports: PortRange) => Promise<OpenedEngine>,
): void {
  describe(`engine contract: ${name}`, () => {
    const bench = new Bench(open);
    before(() => bench.setUp());
    after(() => bench.tearDown());
    describeLife(bench);
    describeLogins(bench);
    describeKeys(bench);
    describeSnapshots(bench);
    describePublishedPorts(bench);
    describeHostileGuest(bench);
  });
}

function describeLife(bench: Bench): void {
  it('creates stopped, starts, stops, starts again with the same disk, deletes', async () => {
    const { engine } = bench;
    const machine = await bench.create();
    assert.deepEqual(await engine.inspect(machine.ref), { state: 'stopped' });
    const login = await bench.login(machine);
    const endpoint = { ip: login.host, port: login.port };
    assert.deepEqual(await engine.inspect(machine.ref), { state: 'running', endpoint });
    assert.deepEqual((await engine.inventory()).instances.get(machine.ref)?.endpoint, endpoint);
    await sshWell(login, 'echo kept > ~/file');
    await engine.stop(machine.ref);
    assert.deepEqual(await engine.inspect(machine.ref), { state: 'stopped' });
    assert.equal(await sshWell(await bench.login(machine), 'cat ~/file'), 'kept\n');
    await engine.delete(machine.ref);
    assert.equal(await engine.inspect(machine.ref), undefined);
    assert.equal((await engine.inventory()).instances.has(machine.ref), false);
  });

  it('does each step twice with the outcome of once', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    await sshWell(login, 'echo kept > ~/file');
    await engine.create(machine, bench.template, []);
    assert.deepEqual(await engine.start(machine), { ip: login.host, port: login.port });
    assert.equal(await sshWell(login, 'cat ~/file'), 'kept\n');
    for (const step of ['stop', 'delete'] as const) {
      await engine[step](machine.ref);
      await engine[step](machine.ref);
    }
  });

  it('does the same step at once with the outcome of once', async () => {
    const { engine } = bench;
    const machine = bench.machine();
    const keys = [{ publicKey: bench.key.publicKey }];
    const create = () => engine.create(machine, bench.template, keys);
    await Promise.all([create(), create()]);
    await Promise.all([engine.start(machine), engine.start(machine)]);
    assert.equal(await sshWell(await bench.login(machine), 'id -un'), 'ubuntu\n');
    await Promise.all([engine.delete(machine.ref), engine.delete(machine.ref)]);
    assert.equal(await engine.inspect(machine.ref), undefined);
  });

  it('refuses what cannot be, and leaves nothing of it', async () => {
    const { engine } = bench;
    const machine = bench.machine();
    const missing = { kind: 'snapshot', snapshotRef: 'no-such-snapshot' } as const;
    await rejectsWith('failed', () => engine.create(machine, missing, []));
    await rejectsWith('failed', () =>
      engine.create(machine, { kind: 'template', template: 'no-such-template' }, []),
    );
    assert.equal(await engine.inspect(machine.ref), undefined);
    await rejectsWith('not_running', () => engine.start(machine));
    await rejectsWith('not_running', () => engine.createSnapshot(machine.ref, 'never'));
    assert.equal((await engine.inventory()).snapshots.has('never'), false);
    await engine.stop(machine.ref);
    await engine.delete(machine.ref);
  });
}

function describeLogins(bench: Bench): void {
  it('gives a login user, a host name, exec, a terminal, sftp and both kinds of scp', async () => {
    const { machine, login } = await bench.run();
    const facts = await sshWell(login, 'id -un; id -u; hostname; echo $HOME; pwd');
    assert.equal(facts, `ubuntu\n1000\n${machine.hostname}\n/home/ubuntu\n/home/ubuntu\n`);
    assert.equal((await ssh(login, 'exit 7')).code, 7);
    assert.equal(await sshWell(login, 'cat', { input: 'over stdin' }), 'over stdin');
    assert.match(await onTerminal(login, 'test -t 0 && tty'), /^\/dev\/pts\/\d+\r?\n/);
    const local = join(bench.folder, 'local');
    writeFileSync(local, 'content\n');
    await sftp(login, `put ${local} by-sftp\nget by-sftp ${local}.back\n`);
    assert.equal(readFileSync(`${local}.back`, 'utf8'), 'content\n');
    await scp(login, local, 'by-scp', false);
    await scp(login, local, 'by-old-scp', true);
    assert.equal(await sshWell(login, 'cat by-scp by-old-scp'), 'content\ncontent\n');
    await bench.engine.delete(machine.ref);
  });

  it('lets in by key only, and only by keys that are there', async () => {
    const { machine, login } = await bench.run();
    const stranger = await makeKeyPair(bench.folder);
    assert.equal(await isDenied({ ...login, keyFile: stranger.keyFile }), true);
    await bench.engine.addKey(machine.ref, { publicKey: stranger.publicKey });
    assert.equal(await isDenied({ ...login, keyFile: stranger.keyFile }), false);
    const ended = await makeKeyPair(bench.folder);
    const expiresAt = new Date(Date.now() - 86_400_000);
    await bench.engine.addKey(machine.ref, { publicKey: ended.publicKey, expiresAt });
    assert.equal(await isDenied({ ...login, keyFile: ended.keyFile }), true);
    await bench.engine.delete(machine.ref);
  });

  it('gives every instance host keys of its own, the same after a restart', async () => {
    const [one, two] = [await bench.run(), await bench.run()];
    const before = await hostKeys(one.login);
    const other = new Set(await hostKeys(two.login));
    assert.ok(before.length > 0 && before.every((key) => !other.has(key)));
    await bench.engine.stop(one.machine.ref);
    assert.deepEqual(await hostKeys(await bench.login(one.machine)), before);
    for (const { machine } of [one, two]) await bench.engine.delete(machine.ref);
  });
}

/** Output of a command that runs on a terminal of the instance. */
function onTerminal(login: Login, command: string): Promise<string> {
  const options = ['StrictHostKeyChecking=no', 'UserKnownHostsFile=/dev/null', 'LogLevel=ERROR'];
  const words = ['-F', 'none', '-tt', ...options.flatMap((option) => ['-o', option])];
  const target = ['-i', login.keyFile, '-p', String(login.port), `ubuntu@${login.host}`];
  return runWell('ssh', [...words, ...target, command]);
}

function describeKeys(bench: Bench): void {
  it('adds once, reports what is present, keeps hand-written bytes', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    const hand = `# by hand\r\ncommand="echo 'x'" ${numberedKey(1)}\n\n  odd line without a newline`;
    await sshWell(login, 'cat > ~/.ssh/authorized_keys', {
      input: `${bench.key.publicKey}\n${hand}`,
    });
    const added = await engine.addKey(machine.ref, { publicKey: numberedKey(2) });
    assert.deepEqual(added, { outcome: 'added', line: numberedKey(2) });
    const again = await engine.addKey(machine.ref, { publicKey: numberedKey(2) });
    assert.equal(again.outcome, 'present');
    const expected = `${bench.key.publicKey}\n${hand}\n${numberedKey(2)}\n`;
    assert.equal(await engine.readKeys(machine.ref), expected);
    assert.equal(await sshWell(login, 'cat ~/.ssh/authorized_keys'), expected);
    const match = { kind: 'line', line: numberedKey(2) } as const;
    assert.equal(await engine.removeKey(machine.ref, match), 1);
    assert.equal(await engine.removeKey(machine.ref, match), 0);
    assert.equal(await engine.readKeys(machine.ref), `${bench.key.publicKey}\n${hand}\n`);
    await engine.delete(machine.ref);
  });

  it('lands 64 different keys at once', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    const numbers = Array.from({ length: 64 }, (_, index) => index);
    await Promise.all(
      numbers.map((number) => engine.addKey(machine.ref, { publicKey: numberedKey(number) })),
    );
    const lines = (await sshWell(login, 'cat ~/.ssh/authorized_keys')).trimEnd().split('\n');
    assert.equal(lines.length, 65);
    for (const number of numbers) assert.ok(lines.includes(numberedKey(number)));
    await engine.delete(machine.ref);
  });

  it('copes with a missing file, a missing folder, and a stopped instance', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    const match = { kind: 'key', publicKey: bench.key.publicKey } as const;
    for (const lost of ['~/.ssh/authorized_keys', '~/.ssh']) {
      await sshWell(login, `rm -r ${lost}`);
      assert.equal(await engine.readKeys(machine.ref), '');
      assert.equal(await engine.removeKey(machine.ref, match), 0);
      await engine.addKey(machine.ref, { publicKey: bench.key.publicKey });
      assert.equal(await sshWell(login, 'stat -c %a ~/.ssh ~/.ssh/authorized_keys'), '700\n600\n');
    }
    await engine.stop(machine.ref);
    await engine.addKey(machine.ref, { publicKey: numberedKey(9) });
    await bench.login(machine);
    assert.match(await sshWell(login, 'cat ~/.ssh/authorized_keys'), / key-9\n$/);
    await engine.delete(machine.ref);
  });

  it('says that an instance is gone', async () => {
    const { engine } = bench;
    const key = { publicKey: numberedKey(1) };
    const match = { kind: 'key', ...key } as const;
    await rejectsWith('not_running', () => engine.addKey('gone', key));
    await rejectsWith('not_running', () => engine.readKeys('gone'));
    await rejectsWith('not_running', () => engine.removeKey('gone', match));
  });
}

function describeSnapshots(bench: Bench): void {
  it('restores a disk after its source is gone, with an identity of its own', async () => {
    const { engine } = bench;
    const { machine, login } = await bench.run();
    const machineId = await sshWell(login, 'echo content > ~/file; sync; cat /etc/machine-id');
    const keys = await hostKeys(login);
    const snapshotRef = bench.snapshotRef();
    await engine.createSnapshot(machine.ref, snapshotRef);
    await engine.createSnapshot(machine.ref, snapshotRef);
    await sshWell(login, 'echo later > ~/file');
    await engine.delete(machine.ref);
    assert.ok((await engine.inventory()).snapshots.has(snapshotRef));

    const extra = await makeKeyPair(bench.folder);
    const copy = bench.machine();
    const source = { kind: 'snapshot', snapshotRef } as const;
    await engine.create(copy, source, [{ publicKey: extra.publicKey }]);
    const copyLogin = await bench.login(copy);
    const seen = await sshWell(copyLogin, 'cat ~/file; hostname; cat /etc/machine-id');
    assert.match(seen, new RegExp(`^content\n${copy.hostname}\n[0-9a-f]{32}\n$`));
    assert.ok(!seen.includes(machineId));
    assert.equal(await isDenied({ ...copyLogin, keyFile: extra.keyFile }), false);
    assert.ok((await hostKeys(copyLogin)).every((key) => !keys.includes(key)));

    for (let times = 0; times < 2; times += 1) await engine.deleteSnapshot(snapshotRef);
    assert.equal((await engine.inventory()).snapshots.has(snapshotRef), false);
    assert.equal(await sshWell(copyLogin, 'cat ~/file'), 'content\n');
    await engine.delete(copy.ref);
  });

  it('goes on with what ran, after a snapshot', async () => {
    const { machine, login } = await bench.run();
    const loop = 'while :; do echo tick >> ~/ticks; sleep 0.02; done';
    await sshWell(login, `setsid nohup sh -c '${loop}' > /dev/null 2>&1 < /dev/null &`);
    const snapshotRef = bench.snapshotRef();
    await bench.engine.createSnapshot(machine.ref, snapshotRef);
    const growth = 'before=$(wc -l < ~/ticks); sleep 0.3; echo $(($(wc -l < ~/ticks) - before))';
    assert.ok(Number(await sshWell(login, growth)) > 0);
    await bench.engine.deleteSnapshot(snapshotRef);
    await bench.engine.delete(machine.ref);
  });
}
