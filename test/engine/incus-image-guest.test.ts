/** What the default image is to be: ours from the first start, somebody else's after a copy, and shut to passwords. */

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type IncusPlace, openIncusPlace, skipIncus } from '../support/incus.ts';
import { run, runWell } from '../support/run.ts';
import { hostKeys, type Login, loginProblem, scp, sftp, ssh, sshWell } from '../support/ssh.ts';
import { eventually } from '../support/waiting.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

const slow = { timeoutMs: 120_000 };

interface Guest {
  readonly name: string;
  readonly hostname: string;
  readonly login: Login;
}

describe('the default image of the Incus engine', { skip: skipIncus }, () => {
  const folder = makeTemporaryFolder('berth-guest-');
  const keyFile = join(folder, 'key');
  let place: IncusPlace;
  let count = 0;

  before(async () => {
    await runWell('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', keyFile]);
    place = await openIncusPlace();
  });
  after(() => place.remove());

  const call = (method: 'POST' | 'PUT', path: string, body: unknown) =>
    place.client.change(method, `/1.0/instances${path}`, body, { project: place.project, ...slow });

  async function make(source: Readonly<Record<string, string>>): Promise<Guest> {
    count += 1;
    const [name, hostname] = [`${place.project}-${count}`, `guest-${count}`];
    const host = place.address.replace(/\d+$/, String(100 + count));
    const { network, pool } = place;
    const devices = {
      root: { type: 'disk', path: '/', pool },
      eth0: { type: 'nic', name: 'eth0', network, 'ipv4.address': host },
    };
    // Guests with the same user ids share the host's limits, such as inotify's, which a few of them use up.
    const config = {
      'environment.BERTH_ID': name,
      'environment.BERTH_HOSTNAME': hostname,
      'security.guestapi': 'false',
      'security.idmap.isolated': 'true',
    };
    await call('POST', '', { name, source, config, devices, profiles: [] });
    return { name, hostname, login: { host, port: 22, keyFile } };
  }

  async function create(): Promise<Guest> {
    const guest = await make({ type: 'image', alias: 'berth-base' });
    await place.client.call(
      'POST',
      `/1.0/instances/${guest.name}/files`,
      readFileSync(`${keyFile}.pub`),
      {
        ...{ project: place.project, query: { path: '/home/ubuntu/.ssh/authorized_keys' } },
        headers: { 'x-incus-type': 'file', 'x-incus-write': 'overwrite' },
      },
    );
    return guest;
  }

  async function change(guest: Guest, action: 'start' | 'stop' | 'restart'): Promise<void> {
    await call('PUT', `/${guest.name}/state`, { action, timeout: 30, force: action === 'stop' });
    if (action === 'stop') return;
    await eventually(`an SSH server in ${guest.name}`, 60_000, async () =>
      (await run('ssh-keyscan', ['-T', '2', guest.login.host])).stdout === '' ? undefined : true,
    );
    assert.equal(await loginProblem(guest.login), undefined);
  }

  /** A snapshot of it, and a new instance from that. */
  async function copy({ name }: Guest, snapshot: string): Promise<Guest> {
    return make({ type: 'copy', source: `${name}/${snapshot}`, project: place.project });
  }

  const machineId = (guest: Guest) => sshWell(guest.login, 'cat /etc/machine-id');

  async function identityOf(guest: Guest): Promise<string[]> {
    const name = await sshWell(
      guest.login,
      'hostname; cat /etc/hostname; sudo hostname; getent hosts "$(hostname)"',
    );
    assert.deepEqual(name.trim().split(/\s+/), [
      ...Array<string>(3).fill(guest.hostname),
      ...['127.0.1.1', guest.hostname],
    ]);
    const journal = await sshWell(guest.login, 'ls -d /run/log/journal/* /var/log/journal/*; true');
    const id = (await machineId(guest)).trim();
    assert.match(id, /^[0-9a-f]{32}$/);
    assert.ok(journal.includes(id), `${journal} without ${id}`);
    return [id, ...(await hostKeys(guest.login))];
  }

  test('every instance has host keys, a machine id and a name of its own, and keeps them', async () => {
    const guests = [await create(), await create()];
    for (const guest of guests) await change(guest, 'start');
    const [source] = guests;
    assert.ok(source);
    const before = await identityOf(source);
    await call('POST', `/${source.name}/snapshots`, { name: 'one' });
    guests.push(await copy(source, 'one'), await copy(source, 'one'));
    for (const guest of guests.slice(2)) await change(guest, 'start');
    const all: string[] = [];
    for (const guest of guests) all.push(...(await identityOf(guest)));
    // A machine id, an Ed25519 and an ECDSA key each.
    assert.equal(all.length, 3 * guests.length);
    assert.equal(new Set(all).size, all.length);
    assert.deepEqual(await identityOf(source), before);
    const last = guests.at(-1) ?? source;
    const its = await identityOf(last);
    await change(last, 'restart');
    assert.deepEqual(await identityOf(last), its);
  });

  test('links that a tenant put in the way do not keep a copy from starting, and lead nowhere', async () => {
    const victim = join(folder, 'victim');
    writeFileSync(victim, 'untouched');
    const source = await create();
    await change(source, 'start');
    const names = ['hostname', 'hosts', 'machine-id', 'instance-id'];
    const links = names.map((name) => `sudo ln -sfn ${victim} /etc/${name}`);
    await sshWell(source.login, `${links.join('; ')}; sync`);
    await call('POST', `/${source.name}/snapshots`, { name: 'one' });
    const guest = await copy(source, 'one');
    await change(guest, 'start');
    assert.equal(await sshWell(guest.login, 'hostname'), `${guest.hostname}\n`);
    assert.equal(readFileSync(victim, 'utf8'), 'untouched');
  });

  test('only keys open it, for ubuntu alone, who may do everything', async () => {
    const guest = await create();
    await change(guest, 'start');
    const { host } = guest.login;
    const options = ['StrictHostKeyChecking=no', 'UserKnownHostsFile=/dev/null', 'LogLevel=ERROR'];
    const words = ['-F', 'none', ...options.flatMap((option) => ['-o', option])];
    const noKey = [...words, '-o', 'PubkeyAuthentication=no', '-o', 'NumberOfPasswordPrompts=0'];
    for (const user of ['ubuntu', 'root'])
      assert.match(
        (await run('ssh', [...noKey, `${user}@${host}`])).stderr,
        /denied \(publickey\)/,
      );
    const sudo = await ssh(guest.login, 'sudo -n id -u');
    assert.deepEqual([sudo.code, sudo.stdout, sudo.stderr], [0, '0\n', '']);
    assert.equal((await ssh(guest.login, 'apt-get --version')).code, 0);
    const put = 'sudo install -m 0600 -D ~/.ssh/authorized_keys /root/.ssh/authorized_keys';
    await sshWell(guest.login, put);
    const asRoot = await run('ssh', [
      ...words,
      '-o',
      'BatchMode=yes',
      '-i',
      keyFile,
      `root@${host}`,
    ]);
    assert.match(asRoot.stderr, /denied \(publickey\)/);
    const settings = await sshWell(guest.login, 'sudo sshd -T');
    for (const line of ['passwordauthentication no', 'kbdinteractiveauthentication no'])
      assert.ok(settings.includes(`${line}\n`), line);
  });

  test('files go in and out in every way, and the system is well', async () => {
    const guest = await create();
    await change(guest, 'start');
    const file = join(folder, 'file');
    writeFileSync(file, 'content\n');
    await scp(guest.login, file, 'new', false);
    await scp(guest.login, file, 'old', true);
    await sftp(guest.login, `put ${file} put\n`);
    assert.equal(await sshWell(guest.login, 'cat new old put'), 'content\n'.repeat(3));
    const state = await ssh(guest.login, 'systemctl is-system-running --wait; systemctl --failed');
    assert.match(state.stdout, /^running\n/, state.stdout);
    const login = await sshWell(guest.login, 'stat -c "%a %U %G" ~ ~/.ssh ~/.ssh/authorized_keys');
    assert.match(login, /^755 ubuntu ubuntu\n700 ubuntu ubuntu\n600 ubuntu ubuntu\n$/);
  });
});
