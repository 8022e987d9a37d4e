/** Every command of the real `bin/berth` against the real service, in the order of a user's day. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { claimPorts } from '../support/ports.ts';
import * as berth from './berth.ts';
import { type Service, startService } from './service.ts';

const unknownUuid = '00000000-0000-4000-8000-000000000000';
const privateKey = /PRIVATE KEY/;

describe('the command line against the service', () => {
  let home: Awaited<ReturnType<typeof berth.makeHome>>;
  let service: Service;
  /** A home with a space and a percent sign in its path, in which somebody has logged in. */
  let env: berth.Environment;
  let token: string;
  let uuid: string;
  let keyFile: string;
  let suppliedFingerprint: string;

  const keysDirectory = () => join(env.HOME ?? '', '.local/share/berth/keys');
  const modeOf = async (path: string) => (await stat(path)).mode & 0o777;
  const keyFingerprints = async () => {
    const { stdout } = await succeed(['key', 'list', '0', '--json']);
    return (JSON.parse(stdout) as { fingerprint: string }[]).map((key) => key.fingerprint);
  };

  const succeed = (args: readonly string[], input?: string) => berth.succeed(env, args, input);
  const fail = (args: readonly string[], code: number, message?: RegExp) =>
    berth.fail(env, args, code, message);

  before(async () => {
    home = await berth.makeHome();
    env = { ...home.env, HOME: join(home.home, 'a home 100%') };
    await mkdir(join(home.home, 'a home 100%'));
    service = await startService(home.env);
  });

  after(async () => {
    await home?.remove();
    await service?.stop();
  });

  test('admin makes an organization and a token', async () => {
    const organization = [
      'admin',
      'org',
      'create',
      'acme',
      '--email',
      'ops@acme.example',
      '--json',
    ];
    const made = await berth.berth(service.env, organization);
    assert.equal(made.code, 0, made.stderr);
    assert.equal(JSON.parse(made.stdout).name, 'acme');
    const again = await berth.berth(service.env, organization);
    assert.equal(again.code, 1, again.stderr);

    const args = [
      'admin',
      'token',
      'create',
      '--org',
      'acme',
      '--name',
      'test',
      '--expires-in',
      '1d',
    ];
    const minted = await berth.berth(service.env, args);
    assert.equal(minted.code, 0, minted.stderr);
    assert.match(minted.stdout, /^berth_[0-9a-f]+\n$/);
    token = minted.stdout.trim();
    const nobody = ['admin', 'token', 'create', '--org', 'nobody', '--name', 'test'];
    assert.equal((await berth.berth(service.env, nobody)).code, 4);
  });

  test('login keeps the token in a private file', async () => {
    const args = ['login', '--url', service.url, '--token-stdin'];
    const { stdout, stderr } = await succeed(args, `${token}\n`);
    assert.match(stdout, /ops@acme\.example \(acme\)/);
    assert.ok(!(stdout + stderr).includes(token));
    const path = join(env.HOME ?? '', '.config/berth/config.json');
    assert.deepEqual(JSON.parse(await readFile(path, 'utf8')), { url: service.url, token });
    assert.equal(await modeOf(path), 0o600);
    assert.equal(await modeOf(join(path, '..')), 0o700);
  });

  test('login says when the environment goes before it', async () => {
    const args = ['login', '--url', service.url, '--token-stdin'];
    const other = { ...env, BERTH_TOKEN: 'berth_other', BERTH_URL: 'http://127.0.0.1:65534' };
    const { stderr } = await berth.succeed(other, args, token);
    assert.match(stderr, /BERTH_URL is set[\s\S]*BERTH_TOKEN is set.*unset BERTH_TOKEN/);
    assert.ok(!stderr.includes(token));
    const same = { ...env, BERTH_TOKEN: token, BERTH_URL: `${service.url}/` };
    assert.equal((await berth.succeed(same, args, token)).stderr, '');
  });

  test('a wrong token exits 3, and a login with it leaves the old one', async () => {
    const wrong = { ...env, BERTH_TOKEN: `berth_${'0'.repeat(72)}` };
    const listed = await berth.berth(wrong, ['instance', 'list']);
    assert.equal(listed.code, 3);
    assert.match(listed.stderr, /berth login/);
    assert.equal((await berth.berth(wrong, ['login'])).code, 3);
    await succeed(['instance', 'list']);
  });

  test('empty lists say what to do next', async () => {
    assert.match((await succeed(['instance', 'list'])).stdout, /berth instance create/);
    assert.match((await succeed(['snapshot', 'list'])).stdout, /berth snapshot create/);
    assert.equal((await succeed(['snapshot', 'list', '--json'])).stdout, '[]\n');
  });

  test('instance create waits until RUNNING and saves the key', async () => {
    const args = ['instance', 'create', '--cpus', '1', '--disk', '2', '--json'];
    const made = JSON.parse((await succeed(args)).stdout);
    assert.deepEqual(Object.keys(made).sort(), ['identifier', 'key_file', 'uuid']);
    assert.equal(made.identifier, 0);
    uuid = made.uuid;
    keyFile = made.key_file;
    assert.equal(keyFile, join(keysDirectory(), uuid));
    assert.equal(await modeOf(keyFile), 0o600);
    assert.match(await readFile(keyFile, 'utf8'), privateKey);
    const shown = JSON.parse((await succeed(['instance', 'show', '0', '--json'])).stdout);
    assert.equal(shown.status, 'RUNNING');
  });

  test('an instance is found by number, UUID and name', async () => {
    const { name } = JSON.parse((await succeed(['instance', 'show', uuid, '--json'])).stdout);
    for (const reference of ['0', uuid, uuid.toUpperCase(), name]) {
      assert.match((await succeed(['instance', 'show', reference])).stdout, new RegExp(uuid));
    }
    assert.match((await succeed(['instance', 'list'])).stdout, /^ID .*\n0 .*RUNNING/);
  });

  for (const reference of ['7', unknownUuid, 'nobody', '..']) {
    test(`an unknown instance (${reference}) exits 4 everywhere`, async () => {
      for (const command of [
        'instance show',
        'instance delete',
        'instance start',
        'instance stop',
      ]) {
        await fail([...command.split(' '), reference], 4);
      }
      for (const command of ['key add', 'key list']) {
        await fail([...command.split(' '), reference], 4);
      }
      await fail(['key', 'remove', reference, 'SHA256:x'], 4);
      await fail(['snapshot', 'create', reference, 'name'], 4);
      await fail(['ssh', reference], 4);
    });
  }

  test('instance modify changes sizes, and instance ports publishes and takes back', async () => {
    const { from: port } = await claimPorts(1);
    const sized = await succeed(['instance', 'modify', '0', '--cpus', '2', '--disk', '2']);
    assert.match(sized.stdout, /^Instance 0 has 2 CPU cores, 8 GB of memory, a disk of 2 GB/);
    await fail(['instance', 'modify', '0', '--disk', '1'], 1, /can only grow/);
    assert.match((await succeed(['instance', 'ports', '0'])).stdout, /no published ports/);
    const add = ['instance', 'ports', '0', '--add', String(port)];
    assert.equal((await succeed(add)).stdout, `Published ports of instance 0: ${port}\n`);
    assert.match((await succeed(['instance', 'show', '0'])).stdout, new RegExp(`Ports +${port}\n`));
    const removed = await succeed(['instance', 'ports', uuid, '--remove', String(port), '--json']);
    const answer = { identifier: '0', instance_name: 'instance-0', http_ports: [] };
    assert.deepEqual(JSON.parse(removed.stdout), answer);
    await fail(['instance', 'ports', '0', '--add', '22'], 1, /22.*reserved/);
  });

  test('a size that cannot be had exits 1, and leaves no key file', async () => {
    await fail(['instance', 'create', '--cpus', '999999'], 1);
    await assert.rejects(stat(join(keysDirectory(), 'new')), { code: 'ENOENT' });
  });

  test('key add takes a public key from a file and from standard input', async () => {
    const path = join(env.HOME ?? '', 'supplied');
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'a laptop', '-f', path]);
    const publicKey = await readFile(`${path}.pub`, 'utf8');
    const listed = execFileSync('ssh-keygen', ['-l', '-f', path], { encoding: 'utf8' });
    suppliedFingerprint = listed.split(' ')[1] ?? '';
    const fromFile = await succeed(['key', 'add', '0', '--public-key', `${path}.pub`, '--json']);
    assert.equal(JSON.parse(fromFile.stdout).key, '');
    const fromInput = await succeed(['key', 'add', '0', '--public-key', '-'], publicKey);
    assert.ok(fromInput.stdout.includes(suppliedFingerprint));
    const table = (await succeed(['key', 'list', '0'])).stdout;
    assert.equal(table.split(suppliedFingerprint).length, 2, 'listed once');
    assert.match(table, /a laptop/);
    await fail(['key', 'add', '0', '--public-key', berth.launcher], 1);
  });

  test('key add saves a made key in a new file, and never over an old one', async () => {
    const path = join(env.HOME ?? '', 'made');
    const args = ['key', 'add', '0', '--output', path];
    const { stdout } = await succeed(args);
    assert.match(stdout, /Log in with: ssh -i .*HostKeyAlias=.*accept-new/);
    assert.doesNotMatch(stdout, /shown this once/);
    assert.equal(await modeOf(path), 0o600);
    const text = await readFile(path, 'utf8');
    const keys = await keyFingerprints();
    await fail(args, 1, /never overwritten/);
    assert.equal(await readFile(path, 'utf8'), text);
    assert.deepEqual(await keyFingerprints(), keys);
  });

  test('key add prints a made key only when asked to, and then nothing else', async () => {
    const printed = await succeed(['key', 'add', '0', '--print']);
    assert.match(
      printed.stdout,
      /^-----BEGIN OPENSSH PRIVATE KEY-----\n[^-]+-----END OPENSSH PRIVATE KEY-----\n$/,
    );
    const asJson = JSON.parse((await succeed(['key', 'add', '0', '--print', '--json'])).stdout);
    assert.match(asJson.key, privateKey);
    const saved = JSON.parse((await succeed(['key', 'add', '0', '--json'])).stdout);
    assert.deepEqual(Object.keys(saved).sort(), ['key_file', 'message', 'success', 'uuid']);
    assert.equal(saved.key_file, join(keysDirectory(), `${uuid}-2`));
    assert.equal(await modeOf(saved.key_file), 0o600);
  });

  test('key add --expires-in names the file by its end', async () => {
    const args = ['key', 'add', '0', '--expires-in', '2h', '--json'];
    const { key_file: path } = JSON.parse((await succeed(args)).stdout);
    assert.match((await succeed(['key', 'list', '0'])).stdout, /^FINGERPRINT .* ENDS {2}.*\n/);
    assert.doesNotMatch(
      (await succeed(['key', 'list', '0', '--json'])).stdout,
      /expires_at|presence/,
    );
    const ends = Number(/\.until-([0-9]+)$/.exec(path)?.[1]);
    assert.ok(Math.abs(ends - Date.now() / 1000 - 7200) < 60);
  });

  test('a key that cannot be written is taken away from the instance again', async () => {
    const keys = await keyFingerprints();
    const path = join(env.HOME ?? '', 'full');
    // Every write to a file fails; pipes are not files.
    const script = 'ulimit -f 0; exec "$@"';
    const args = ['-c', script, 'sh', berth.launcher, 'key', 'add', '0', '--output', path];
    const { code, stdout, stderr } = await berth.run('sh', args, { env });
    assert.equal(code, 1, stderr);
    assert.match(stderr, /file too large\. It was removed from the instance again\./);
    assert.doesNotMatch(stdout + stderr, privateKey);
    await assert.rejects(stat(path), { code: 'ENOENT' });
    assert.deepEqual(await keyFingerprints(), keys);
  });

  test('key remove takes one key away', async () => {
    await succeed(['key', 'remove', '0', suppliedFingerprint]);
    assert.ok(!(await keyFingerprints()).includes(suppliedFingerprint));
    await fail(['key', 'remove', '0', suppliedFingerprint], 4);
  });

  test('key add --verify has the login proved', async (context) => {
    if (service.noShells) return context.skip(service.noShells);
    const path = join(env.HOME ?? '', 'supplied.pub');
    await succeed(['key', 'add', '0', '--public-key', path, '--verify']);
  });

  test('ssh logs in with the saved key and passes the status on', async (context) => {
    if (service.noShells) return context.skip(service.noShells);
    const before = await keyFingerprints();
    const hello = await succeed(['ssh', '0', '--', 'echo', 'hello', '$USER', '-n']);
    assert.equal(hello.stdout, 'hello ubuntu -n\n');
    assert.equal((await berth.berth(env, ['ssh', '0', 'exit 7'])).code, 7);
    const piped = await succeed(['ssh', '0', '--', '-T', 'cat'], 'through\n');
    assert.equal(piped.stdout, 'through\n');
    assert.deepEqual(await keyFingerprints(), before, 'no key was added');
    // Fails when the host is not known by the UUID of the instance; the file may be hashed.
    execFileSync('ssh-keygen', ['-F', uuid, '-f', join(keysDirectory(), 'known_hosts')]);
  });

  test('ssh makes a key when none of the saved ones is accepted', async (context) => {
    if (service.noShells) return context.skip(service.noShells);
    for (const fingerprint of await keyFingerprints()) {
      await succeed(['key', 'remove', '0', fingerprint]);
    }
    assert.deepEqual(await keyFingerprints(), []);
    const first = await succeed(['ssh', '0', 'true']);
    assert.match(first.stderr, /The private key is in .*-3/);
    assert.equal(await modeOf(join(keysDirectory(), `${uuid}-3`)), 0o600);
    const second = await succeed(['ssh', '0', 'true']);
    assert.equal(second.stderr, '');
    assert.equal((await keyFingerprints()).length, 1);
  });

  test('snapshot create waits until READY; list and delete know it by name', async () => {
    const made = JSON.parse((await succeed(['snapshot', 'create', '0', 'first', '--json'])).stdout);
    assert.equal(made.status, 'READY');
    await fail(['snapshot', 'create', '0', 'first'], 1);
    await fail(['snapshot', 'create', '0', '-bad'], 2);
    await fail(['snapshot', 'create', '0', 'not a name'], 1);
    assert.match((await succeed(['snapshot', 'list'])).stdout, /^NAME .*\nfirst +READY +2 GB/);
    const listed = JSON.parse((await succeed(['snapshot', 'list', '--json'])).stdout);
    assert.deepEqual(listed, [made]);
    await fail(['snapshot', 'delete', 'second'], 4, /berth snapshot list/);
    await fail(['snapshot', 'delete', unknownUuid], 4);
  });

  test('instance create restores a snapshot, with a key of the user', async () => {
    const publicKey = await readFile(join(env.HOME ?? '', 'supplied.pub'), 'utf8');
    const args = ['instance', 'create', '--disk', '2', '--template', 'first', '--public-key', '-'];
    const { stdout } = await succeed(args, publicKey);
    assert.match(stdout, /^Made instance 1 \(.*\)\.\nInstance 1 is RUNNING/);
    assert.doesNotMatch(stdout, /private key/);
    await succeed(['snapshot', 'delete', 'first']);
    await succeed(['instance', 'delete', '1']);
  });

  test('stop and start wait, and ssh says when it has to', async () => {
    assert.match((await succeed(['instance', 'stop', '0'])).stdout, /Instance 0 is STOPPED/);
    await fail(['ssh', '0'], 1, /berth instance start 0/);
    await fail(['snapshot', 'create', '0', 'cold'], 1, /STOPPED/);
    assert.match((await succeed(['instance', 'start', '0'])).stdout, /Instance 0 is RUNNING/);
    if (!service.noShells) await succeed(['ssh', '0', 'true']);
  });

  test('a token does not get to another service', async () => {
    await fail(['instance', 'list', '--url', 'http://127.0.0.1:65534'], 3, /Not logged in/);
  });

  test('instance delete ends it', async () => {
    const deleted = await succeed(['instance', 'delete', uuid]);
    assert.ok(
      deleted.stdout.includes(`saved private key ${join(keysDirectory(), uuid)}-2 was deleted`),
    );
    const left = (await readdir(keysDirectory())).filter((name) => name.startsWith(uuid));
    assert.deepEqual(left, []);
    const deadline = Date.now() + 30_000;
    while ((await berth.berth(env, ['instance', 'show', uuid])).code !== 4) {
      assert.ok(Date.now() < deadline, 'it is gone within 30 s');
    }
  });

  test('logout deletes the saved token, and only that of its service', async () => {
    await fail(['logout', '--url', 'http://127.0.0.1:65534'], 1, /is for .* and not for/);
    assert.match((await succeed(['logout', '--url', service.url])).stdout, /Logged out of/);
    await fail(['instance', 'list', '--url', service.url], 3, /Not logged in/);
    assert.match((await succeed(['logout'])).stdout, /No token is saved/);
  });
});
