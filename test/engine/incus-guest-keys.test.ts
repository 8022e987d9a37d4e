/** Keys in a real system container: what is added, what stands in the way, and what goes wrong on the way there. */

import assert from 'node:assert/strict';
import { readdirSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { IncusClient } from '../../src/engines/incus/client.ts';
import { GuestExec } from '../../src/engines/incus/exec.ts';
import { IncusError } from '../../src/engines/incus/incus-error.ts';
import { skipIncus } from '../support/incus.ts';
import { eventually, sleep } from '../support/waiting.ts';
import { numberedKey, rejectsWith } from './engine-contract.ts';
import { KeyGuest, Relay } from './incus-key-guest.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

const KEY = { publicKey: numberedKey(1) };
const MATCH = { kind: 'key', ...KEY } as const;
/** The service waits 10 s for an engine. */
const LIMIT_MS = 10_000;

describe('keys in an Incus guest', { skip: skipIncus }, () => {
  let guest: KeyGuest;
  before(async () => {
    guest = await KeyGuest.open('keys');
  });
  beforeEach(() => guest.clear());
  after(() => guest?.incus.remove());
  const add = (key = KEY) => guest.keys.add(guest.place, key);

  /** Each of the three ways to the file fails like this, in time. */
  const refuse = async (kind: Parameters<typeof rejectsWith>[0], said: RegExp) => {
    for (const work of [
      () => add(),
      () => guest.keys.read(guest.place),
      () => guest.keys.remove(guest.place, MATCH),
    ]) {
      const error = await rejectsWith(kind, work);
      assert.match(error.message, said);
    }
  };

  it('adds once, tells what is there, takes out, and leaves every other byte', async () => {
    const odd = Buffer.from('# \xff by hand\r\n\0\n  odd line without an end', 'latin1');
    await guest.put(odd);
    assert.deepEqual(await add(), { outcome: 'added', line: KEY.publicKey });
    assert.deepEqual(await add(), { outcome: 'present', line: KEY.publicKey });
    const expected = Buffer.concat([odd, Buffer.from(`\n${KEY.publicKey}\n`)]);
    assert.deepEqual(await guest.bytes(), expected);
    assert.equal(await guest.keys.read(guest.place), expected.toString());
    assert.equal(await guest.keys.remove(guest.place, MATCH), 1);
    assert.equal(await guest.keys.remove(guest.place, MATCH), 0);
    assert.deepEqual(await guest.bytes(), Buffer.concat([odd, Buffer.from('\n')]));
  });

  it('leaves it to the one who knows the format whether a line gives enough', async () => {
    const limited = `from="10.0.0.0/8" ${KEY.publicKey}`;
    await guest.put(`${limited}\r\n`);
    assert.deepEqual(await add(), { outcome: 'present', line: limited });
    const ended = `expiry-time="20200101Z" ${KEY.publicKey}`;
    await guest.put(`# ${KEY.publicKey}\n${ended}`);
    assert.equal((await add()).outcome, 'added');
    assert.equal(await guest.text(), `# ${KEY.publicKey}\n${ended}\n${KEY.publicKey}\n`);
    const expiresAt = new Date(Date.now() + 3_600_000);
    const { line } = await guest.keys.add(guest.place, { publicKey: numberedKey(2), expiresAt });
    assert.match(line, /^expiry-time="\d{14}Z" /);
    assert.ok((await guest.text()).endsWith(`\n${line}\n`));
  });

  it('lands 64 different keys at once, and 8 that each need the whole file', async () => {
    const numbers = Array.from({ length: 64 }, (_, index) => index);
    await guest.put(
      numbers
        .slice(0, 8)
        .map((one) => `# ${numberedKey(one)}\n`)
        .join(''),
    );
    await Promise.all(numbers.map((one) => add({ publicKey: numberedKey(one) })));
    const lines = (await guest.text()).trimEnd().split('\n');
    assert.equal(lines.length, 72);
    assert.deepEqual(new Set(lines.slice(8)), new Set(numbers.map((one) => numberedKey(one))));
  });

  it('makes what is missing, and mends what sshd would not accept', async () => {
    for (const lost of ['$K', '.ssh']) {
      await guest.do(`rm -r ${lost}`);
      assert.equal(await guest.keys.read(guest.place), '');
      assert.equal(await guest.keys.remove(guest.place, MATCH), 0);
      await guest.do(`! [ -e ${lost} ]`);
      assert.equal((await add()).outcome, 'added');
      await guest.do('[ "$(stat -c %a .ssh $K | tr "\\n" " ")" = "700 600 " ]');
    }
    await guest.do('chmod 0 $K; chmod 500 .ssh; chmod 777 . ; mkdir -p t/x; chmod 0 .ssh');
    assert.equal((await add()).outcome, 'present');
    await guest.do(
      'chmod 664 $K; mkdir .ssh/.authorized_keys.new; ln -s x .ssh/.authorized_keys.new.1',
    );
    assert.equal((await add({ publicKey: numberedKey(2) })).outcome, 'added');
    const modes = '[ "$(stat -c %a . .ssh $K | tr "\\n" " ")" = "755 700 644 " ]';
    await guest.do(modes);
    await guest.do('[ "$(ls -A .ssh | wc -l)" -eq 2 ]');
  });

  it('says what stands in the way', async () => {
    const inTheWay: readonly (readonly [script: string, said: RegExp])[] = [
      ['rm $K; ln -s /etc/passwd $K', /authorized_keys .*symbolic link/],
      ['rm -f $K; mkfifo $K', /authorized_keys .*FIFO/],
      ['rm -f $K; mkdir $K', /authorized_keys .*folder/],
      ['rmdir $K; truncate -s 1G $K', /1 MiB/],
      ['truncate -s 1048577 $K', /1 MiB/],
      ['rm $K; mv .ssh s; ln -s s .ssh', /~\/\.ssh .*symbolic link/],
      ['rm .ssh; mkfifo .ssh', /~\/\.ssh .*FIFO/],
      ['rm .ssh; touch .ssh', /~\/\.ssh .*file/],
      ['rm .ssh; mkdir .ssh; sudo chown root .ssh', /~\/\.ssh .*another user/],
    ];
    for (const [script, said] of inTheWay) {
      await guest.do(script);
      await refuse('guest_conflict', said);
    }
    await guest.do('sudo rmdir .ssh; mv s .ssh; : > $K; sudo chown root $K');
    await refuse('guest_conflict', /authorized_keys .*another user/);
  });

  it('takes a file of exactly 1 MiB, and adds to it', async () => {
    const file = `${'x'.repeat(1024 * 1024 - 1)}\n`;
    await guest.put(file);
    assert.equal(await guest.keys.read(guest.place), file);
    assert.equal((await add()).outcome, 'added');
    assert.equal(await guest.text(), `${file}${KEY.publicKey}\n`);
  });

  it('gives up in time when the guest holds the lock or makes programs hang', async () => {
    await guest.do('setsid flock .ssh sleep 15 < /dev/null > /dev/null 2>&1 & sleep 0.3');
    const locked = await inTime(() => rejectsWith('guest_conflict', add));
    assert.match(locked.message, /locked/);
    assert.equal(await guest.text(), '');
    await guest.do('pkill -x sleep; true');
    await replacingTool(guest, 'sync', '/usr/bin/sleep 100', async () => {
      await inTime(() => rejectsWith('timeout', add));
    });
    assert.equal(await guest.text(), '');
    assert.equal((await add()).outcome, 'added');
  });

  it('leaves few programs behind in a guest where each of them hangs', async () => {
    const exec = new GuestExec(guest.incus.client);
    const hang = () =>
      exec.run(guest.place, performance.now() + 1_000, () => ['/usr/bin/sleep', '60']);
    for (let round = 0; round < 2; round += 1) {
      const ends = await Promise.allSettled(Array.from({ length: 4 }, hang));
      assert.deepEqual(new Set(ends.map(({ status }) => status)), new Set(['rejected']));
    }
    assert.ok((await guest.programCount()) <= 4);
    const later = performance.now() + LIMIT_MS;
    assert.equal(await exec.run(guest.place, later, () => ['/usr/bin/true']), 0);
  });

  it('believes no program that says it did well, takes no flood, and names a missing one', async () => {
    await replacingTool(guest, 'flock', 'exit 0', async () => {
      assert.equal((await add()).outcome, 'added');
    });
    await replacingTool(guest, 'head', '/usr/bin/cat /dev/zero', async () => {
      await inTime(() => rejectsWith('failed', () => guest.keys.read(guest.place)));
    });
    await guest.do('mv /usr/bin/flock /usr/bin/flock.real', 0);
    try {
      const error = await rejectsWith('guest_conflict', () => add({ publicKey: numberedKey(2) }));
      assert.match(error.message, /Install/);
    } finally {
      await guest.do('mv /usr/bin/flock.real /usr/bin/flock', 0);
    }
  });

  it('writes nothing on the disk of the host, whatever programs of the guest say', async () => {
    const stateFolder = dirname(guest.incus.url.slice('unix:'.length));
    const logs = join(stateFolder, 'logs', `${guest.place.project}_${guest.place.name}`);
    const before = folderBytes(logs);
    for (const tool of ['flock', 'sync'])
      await replacingTool(guest, tool, '/usr/bin/timeout 2 /usr/bin/yes', async () => {
        await inTime(() => add().catch(() => undefined));
      });
    const grown = folderBytes(logs) - before;
    assert.ok(grown < 100_000, `${grown} bytes were written into ${logs}`);
  });

  it('tells a full disk apart, and still reads', async () => {
    await add();
    await guest.do(
      'dd if=/dev/zero of=fill bs=1M 2> /dev/null; dd if=/dev/zero of=fill2 bs=4k 2> /dev/null; sync; true',
    );
    try {
      const large = { publicKey: `${numberedKey(2)} ${'x'.repeat(15_000)}` };
      await rejectsWith('no_space', () => add(large));
      assert.equal(await guest.keys.read(guest.place), `${KEY.publicKey}\n`);
    } finally {
      await guest.do('rm -f fill fill2; sync');
    }
    assert.equal(await guest.run('[ -e .ssh/.authorized_keys.new ]'), 1);
  });

  it('waits for a guest that is paused for a moment', async () => {
    await guest.setState('freeze');
    const added = add();
    await sleep(700);
    await guest.setState('unfreeze');
    assert.equal((await added).outcome, 'added');
  });

  it('goes on when the server comes back, and tells its own work from what was there', () =>
    withRelay(guest, (relay) => viaRelay(relay, guest)));

  it('connects nothing that Incus does not wait for', () =>
    withRelay(guest, async (relay) => {
      await relay.open();
      await holdingEach(relay, guest);
    }));

  it('takes the end of a program as such, whichever of its connections is late', () =>
    withRelay(guest, async (relay) => {
      await relay.open();
      await delayingEach(relay, guest);
    }));

  it('finds out what a program did when Incus cannot say how it ended', async () => {
    const { url, project } = guest.incus;
    const client = new UnsureClient({ endpoints: [url], tls: undefined, project });
    const keys = guest.keysBy(client);
    try {
      for (const [number, unsure] of [
        [1, () => ({ return: -1 })],
        [2, () => Promise.reject(new IncusError('refused', 'websocket: close 1006'))],
      ] as const) {
        const key = { publicKey: numberedKey(number) };
        client.once = unsure;
        assert.equal((await keys.add(guest.place, key)).outcome, 'added');
        assert.equal(client.once, undefined);
        assert.equal((await keys.add(guest.place, key)).outcome, 'present');
      }
      assert.equal(await guest.text(), `${numberedKey(1)}\n${numberedKey(2)}\n`);
    } finally {
      client.close();
    }
  });

  it('says that an instance is gone, and that nobody answers', async () => {
    const gone = { ...guest.place, name: 'gone' };
    await rejectsWith('not_running', () => guest.keys.add(gone, KEY));
    await rejectsWith('not_running', () => guest.keys.read(gone));
    await rejectsWith('not_running', () => guest.keys.remove(gone, MATCH));
    await withRelay(guest, async ({ client }) => {
      const keys = guest.keysBy(client);
      await inTime(() => rejectsWith('unavailable', () => keys.add(guest.place, KEY)));
    });
  });
});

/** Loses the end of one program, as Incus does where the agent of a virtual machine was cut off. */
class UnsureClient extends IncusClient {
  once: (() => unknown) | undefined;

  override async wait(...words: Parameters<IncusClient['wait']>): ReturnType<IncusClient['wait']> {
    const ended = await super.wait(...words);
    const { once } = this;
    this.once = undefined;
    return once ? { ...ended, metadata: await once() } : ended;
  }
}

/** One that is shut until the work opens it. */
async function withRelay(guest: KeyGuest, work: (relay: Relay) => Promise<void>): Promise<void> {
  const folder = makeTemporaryFolder('incus-relay-');
  const relay = new Relay(folder, guest.incus.url);
  try {
    await work(relay);
  } finally {
    await relay.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function viaRelay(relay: Relay, guest: KeyGuest): Promise<void> {
  const keys = guest.keysBy(relay.client);
  const add = (number: number) => keys.add(guest.place, { publicKey: numberedKey(number) });
  const early = add(1);
  await sleep(700);
  await relay.open();
  assert.equal((await early).outcome, 'added');
  for (const [number, text] of [
    [2, '/wait?'],
    [3, 'POST /1.0/instances'],
  ] as const) {
    // Twice: a question that only reads is asked again by the client itself.
    relay.lose(text, text.startsWith('POST') ? 1 : 2);
    assert.equal((await add(number)).outcome, 'added', `when ${text} is lost`);
    assert.equal((await add(number)).outcome, 'present');
  }
  relay.lose('/wait?', 2);
  assert.equal((await add(1)).outcome, 'present', 'an older line is none of this call');
  // The first one is that of reading the file.
  relay.lose('/wait?', 2, 1);
  assert.equal(await keys.remove(guest.place, { kind: 'key', publicKey: numberedKey(2) }), 1);
  assert.equal(await guest.text(), `${numberedKey(1)}\n${numberedKey(3)}\n`);
}

/** A connection that comes when the program has begun may come when it ends, which Incus does not survive. */
async function holdingEach(relay: Relay, guest: KeyGuest): Promise<void> {
  const keys = guest.keysBy(relay.client);
  let count = 1;
  for (let number = 1; number <= count; number += 1) {
    await guest.clear();
    relay.hold('/websocket?', number);
    const added = keys.add(guest.place, KEY);
    await eventually('the connection', 5000, () => relay.held.isHolding || undefined);
    await sleep(300);
    count = relay.held.seen;
    assert.equal(await guest.text(), '', `without connection ${number} of ${count}`);
    relay.letGo();
    assert.equal((await added).outcome, 'added');
  }
  assert.equal(count, 3);
}

/** Incus closes all connections of a program at once; which of them is heard of first is anybody's guess. */
async function delayingEach(relay: Relay, guest: KeyGuest): Promise<void> {
  const exec = new GuestExec(relay.client);
  const command = () => ['/bin/sh', '-c', 'cat; echo out; echo err >&2; exit 3'];
  const exchange = { input: Buffer.from('in\n'), limitBytes: 100 };
  for (const number of [1, 2, 3]) {
    relay.delay('/websocket?', number, 300);
    const ended = await exec.exchange(guest.place, performance.now() + 8_000, command, exchange);
    assert.deepEqual([ended.status, String(ended.output)], [3, 'in\nout\n'], `${number} is late`);
  }
}

/** Of all files in it, now. */
const folderBytes = (folder: string): number =>
  readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);

/** A program of this name comes first on the way that the shell looks for it. */
async function replacingTool(
  guest: KeyGuest,
  name: string,
  body: string,
  work: () => Promise<void>,
): Promise<void> {
  const path = `/usr/local/bin/${name}`;
  await guest.do(`printf '#!/bin/sh\\n%s\\n' '${body}' > ${path} && chmod 755 ${path}`, 0);
  try {
    await work();
  } finally {
    await guest.do(`rm ${path}`, 0);
  }
}

async function inTime<T>(work: () => Promise<T>): Promise<T> {
  const begin = performance.now();
  const result = await work();
  const tookMs = performance.now() - begin;
  assert.ok(tookMs < LIMIT_MS, `took ${tookMs} ms`);
  return result;
}
