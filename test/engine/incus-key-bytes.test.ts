/** What a guest's own programs make of the bytes of authorized_keys is what authorizeKey() and revokeKey() make of them. */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { authorizeKey, revokeKey } from '../../src/domain/authorized-keys.ts';
import { GuestExec } from '../../src/engines/incus/exec.ts';
import {
  appendCommand,
  type Limits,
  replaceCommand,
  status,
} from '../../src/engines/incus/guest-key-scripts.ts';
import { skipIncus } from '../support/incus.ts';
import { Random, seedFrom } from '../support/random.ts';
import { numberedKey } from './engine-contract.ts';
import { KeyGuest } from './incus-key-guest.ts';

const FILES = 40;
const [WANTED, OTHER] = [numberedKey(1), numberedKey(2)];
const [TYPE = '', BASE64 = ''] = WANTED.split(' ');
const HOUR_MS = 3_600_000;

const soon = (seconds = 5): Limits => ({
  until: Math.floor(Date.now() / 1000) + seconds,
  seconds: 5,
});
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** So that each end is met, whatever the seed. */
const SURE = ['', `${OTHER}\n${WANTED}\n`, `no-pty ${WANTED}\n`].map((text) => Buffer.from(text));

/** Lines with and around the key, as people, editors and mischief leave them. */
function oddLine(random: Random): string {
  const options = [
    '',
    'no-pty ',
    'from="1.2.3.4" ',
    'command="a b # \\"" ',
    'cert-authority ',
    'bad,, ',
  ];
  const times = ['expiry-time="20200101Z" ', 'expiry-time="29990101Z" '];
  const types = [TYPE, TYPE, TYPE, 'ssh-rsa', 'rsa-sha2-256', TYPE.toUpperCase()];
  const words = [
    BASE64,
    BASE64,
    BASE64,
    `${BASE64}\r`,
    `${BASE64.slice(0, 20)}\r${BASE64.slice(20)}`,
    `${BASE64}A`,
    `x${BASE64}`,
  ];
  const key = () =>
    `${random.pick(types)}${random.pick([' ', '\t', '  ', '\0', ''])}${random.pick(words)}`;
  return random.pick([
    () => WANTED,
    () => OTHER,
    () =>
      `${random.pick([...options, ...times])}${key()}${random.pick(['', ' key-1', ' \xff\xfe', '\0 x'])}`,
    () => `${random.pick(['#', ' ', '\t', '\v', '\0'])}${WANTED}`,
    () => `${WANTED}${random.pick([' ', '\0', '\r', '\v', ' more'])}`,
    () => random.pick(['', '# note', '\0\0', '\r', '\\', '%s\\n', '-n', '$(id)', '*', `  ${TYPE}`]),
    () => random.text(random.below(60), '\0\r\t "\\#=,AZaz09\xe9\xff'),
  ])();
}

function oddFile(random: Random): Buffer {
  const count = random.below(8);
  const lines = Array.from({ length: count }, () => oddLine(random));
  if (random.chance(0.2)) lines.splice(random.below(count + 1), 0, `# ${'y'.repeat(5000)}`);
  const text = lines.join(random.pick(['\n', '\n', '\n', '\r\n', '\n\n']));
  return Buffer.from(random.chance(0.6) && count > 0 ? `${text}\n` : text, 'latin1');
}

describe('the bytes of authorized_keys in an Incus guest', { skip: skipIncus }, () => {
  let guest: KeyGuest;
  let exec: GuestExec;
  before(async () => {
    guest = await KeyGuest.open('bytes');
    exec = new GuestExec(guest.incus.client);
  });
  after(() => guest?.incus.remove());

  const giveUpAt = () => performance.now() + 8_000;
  const append = (limits = soon(), since = 0, line = WANTED) =>
    exec.run(guest.place, giveUpAt(), () =>
      appendCommand(limits, {
        line,
        base64: line.split(' ')[1] ?? '',
        since,
        recent: 1,
        nonce: 'n',
      }),
    );
  const replace = async (
    before: string,
    content: Buffer,
    after = sha256(content),
    limits = soon(),
  ) => {
    const command = () => replaceCommand(limits, { before, after, nonce: 'n' });
    const exchange = { input: content, limitBytes: 100 };
    return (await exec.exchange(guest.place, giveUpAt(), command, exchange)).status;
  };

  it('are changed as the domain changes them', async () => {
    const seed = seedFrom('BERTH_FUZZ_SEED');
    const random = new Random(seed);
    const now = new Date();
    const sure = new Set<number>();
    for (let count = 0; count < FILES; count += 1) {
      const file = SURE[count] ?? oddFile(random);
      const said = `seed ${seed}, file ${count}: ${JSON.stringify(file.toString('latin1'))}`;
      const key = {
        publicKey: WANTED,
        ...(count >= SURE.length &&
          random.chance(0.3) && { expiresAt: new Date(now.getTime() + HOUR_MS) }),
      };
      const { file: wanted, ...outcome } = authorizeKey(file, key, now);
      await guest.put(file);
      const code = await append(soon(), 0, authorizeKey(Buffer.alloc(0), key, now).line);
      sure.add(code);
      if (code === status.unsure) assert.deepEqual(await guest.bytes(), file, said);
      else assert.equal(code, outcome.outcome === 'added' ? status.landed : status.present, said);
      await guest.put(file);
      assert.deepEqual(await guest.keys.add(guest.place, key), outcome, said);
      assert.deepEqual(await guest.bytes(), wanted, said);
      const match = random.chance(0.5)
        ? ({ kind: 'key', publicKey: WANTED } as const)
        : ({ kind: 'line', line: WANTED } as const);
      const revoked = revokeKey(wanted, match);
      assert.equal(await guest.keys.remove(guest.place, match), revoked.removed, said);
      assert.deepEqual(await guest.bytes(), revoked.file, said);
    }
    assert.deepEqual(sure, new Set([status.landed, status.present, status.unsure]), `seed ${seed}`);
  });

  it('are not touched too late, and by the clock of the guest', async () => {
    await guest.clear();
    assert.equal(await append(soon(-2)), status.late);
    assert.equal(
      await replace(sha256(Buffer.alloc(0)), Buffer.from('x'), undefined, soon(-2)),
      status.late,
    );
    assert.equal(await guest.text(), '');
    assert.equal(await guest.run('[ "$(ls -A .ssh)" = authorized_keys ]'), 0);
    // A guest whose clock is an hour ahead, as it looks to us whose clock is an hour behind.
    const behind = guest.keysBy(guest.incus.client, () => new Date(Date.now() - HOUR_MS));
    assert.equal((await behind.add(guest.place, { publicKey: WANTED })).outcome, 'added');
  });

  it('are taken for the work of an attempt that was not heard of only when they are new', async () => {
    await guest.clear();
    const begin = Math.floor(Date.now() / 1000);
    assert.equal(await append(), status.landed);
    assert.equal(await append(soon(), begin), status.landed);
    assert.equal(await append(), status.present);
    assert.equal(await append(soon(), begin + 3600), status.present);
    assert.equal(await append(soon(), 0, OTHER), status.landed);
    assert.equal(await append(soon(), begin), status.present, 'not the last line');
    assert.equal(await guest.text(), `${WANTED}\n${OTHER}\n`);
  });

  it('are replaced only when they are those that were read, and by all of the new ones', async () => {
    await guest.put('old\n');
    const [old, fresh] = [sha256(Buffer.from('old\n')), Buffer.from('\0fresh\n')];
    assert.equal(await replace(sha256(fresh), fresh), status.changed);
    assert.equal(await replace('none', fresh), status.changed);
    assert.equal(await replace(old, fresh.subarray(0, 3), sha256(fresh)), status.inputLost);
    assert.equal(await guest.text(), 'old\n');
    assert.equal(await replace(old, fresh), status.landed);
    assert.deepEqual(await guest.bytes(), fresh);
    assert.equal(await guest.run('[ "$(ls -A .ssh)" = authorized_keys ]'), 0);
  });
});

describe('keys in a stopped Incus guest', { skip: skipIncus }, () => {
  let guest: KeyGuest;
  before(async () => {
    guest = await KeyGuest.open('stopped');
    await guest.clear();
    // Each is put in the place of ~/.ssh in turn.
    await guest.do(`
      mkdir -m 700 fifo link folder socket large foreign foreigner leftover
      mkfifo fifo/authorized_keys; ln -s /etc/shadow link/authorized_keys; mkdir folder/authorized_keys
      perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => shift, Listen => 1)' socket/authorized_keys
      truncate -s 1G large/authorized_keys; touch foreign/authorized_keys
      sudo chown root foreign/authorized_keys foreigner
      ln -s leftover linked; mkfifo pipe; touch plain
      ln -s /etc/shadow leftover/.authorized_keys.new; echo old > leftover/authorized_keys
      chmod 666 leftover/authorized_keys; chmod 777 leftover .`);
    await guest.setState('stop');
  });
  after(() => guest?.incus.remove());

  const home = '/home/ubuntu';
  const KEY = { publicKey: WANTED };

  it('are added, found, read and taken out', async () => {
    const { keys, place } = guest;
    assert.equal((await keys.add(place, KEY)).outcome, 'added');
    assert.equal((await keys.add(place, KEY)).outcome, 'present');
    await Promise.all(
      Array.from({ length: 8 }, (_, one) => keys.add(place, { publicKey: numberedKey(one + 2) })),
    );
    assert.equal((await keys.read(place)).split('\n').length, 10);
    assert.equal(await keys.remove(place, { kind: 'key', publicKey: WANTED }), 1);
    assert.equal(await keys.remove(place, { kind: 'key', publicKey: WANTED }), 0);
    assert.equal((await keys.read(place)).split('\n').length, 9);
  });

  it('are told from what stands in their way, without waiting for it', async () => {
    const { keys, place } = guest;
    await guest.onDisk((sftp) => sftp.rename(`${home}/.ssh`, `${home}/away`));
    for (const [name, said] of [
      ['fifo', /authorized_keys .*FIFO/],
      ['link', /authorized_keys .*symbolic link/],
      ['folder', /authorized_keys .*folder/],
      ['socket', /authorized_keys .*socket/],
      ['large', /1 MiB/],
      ['foreign', /authorized_keys .*another user/],
      ['foreigner', /~\/\.ssh .*another user/],
      ['linked', /~\/\.ssh .*symbolic link/],
      ['pipe', /~\/\.ssh .*FIFO/],
      ['plain', /~\/\.ssh .*file/],
    ] as const) {
      await guest.onDisk((sftp) => sftp.rename(`${home}/${name}`, `${home}/.ssh`));
      for (const work of [
        () => keys.add(place, KEY),
        () => keys.read(place),
        () => keys.remove(place, { kind: 'key', publicKey: WANTED }),
      ])
        await assert.rejects(work, { kind: 'guest_conflict', message: said }, name);
      await guest.onDisk((sftp) => sftp.rename(`${home}/.ssh`, `${home}/${name}`));
    }
  });

  it('are put into folders that are missing or that others may write to, for sshd to read', async () => {
    const { keys, place } = guest;
    assert.equal(await keys.read(place), '');
    assert.equal(await keys.remove(place, { kind: 'key', publicKey: WANTED }), 0);
    assert.equal((await keys.add(place, KEY)).outcome, 'added');
    const made = await guest.onDisk(async (sftp) => {
      const facts = [await sftp.lstat(home), await sftp.lstat(`${home}/.ssh`)];
      return [...facts, await sftp.lstat(`${home}/.ssh/authorized_keys`)];
    });
    assert.deepEqual(
      made.map((facts) => facts && (facts.mode & 0o777).toString(8)),
      ['755', '700', '600'],
    );
    assert.deepEqual(
      made.map((facts) => facts && [facts.uid, facts.gid]),
      Array(3).fill([1000, 1000]),
    );
    await guest.onDisk(async (sftp) => {
      await sftp.rename(`${home}/.ssh`, `${home}/first`);
      await sftp.rename(`${home}/leftover`, `${home}/.ssh`);
    });
    assert.equal((await keys.add(place, KEY)).outcome, 'added');
    await guest.setState('start');
    await guest.whenUp();
    assert.equal(await keys.read(place), `old\n${WANTED}\n`);
    await guest.do(
      '[ "$(stat -c %a .ssh $K | tr "\\n" " ")" = "755 644 " ] && [ "$(ls -A .ssh)" = authorized_keys ]',
    );
    await guest.do('! sudo grep -q ssh-ed25519 /etc/shadow');
  });
});
