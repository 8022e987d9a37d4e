/** `berth key where`, `berth key revoke` and `berth key book` against the real service. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import * as berth from './berth.ts';
import { type Service, startService } from './service.ts';

interface Revoked {
  readonly fingerprint: string;
  readonly results: readonly { identifier: number; result: string; message?: string }[];
}

describe('one key, everywhere', () => {
  let home: Awaited<ReturnType<typeof berth.makeHome>>;
  let service: Service;
  let env: berth.Environment;
  let publicKeyFile: string;
  let fingerprint: string;

  const succeed = (args: readonly string[], input?: string) => berth.succeed(env, args, input);
  const fail = (args: readonly string[], code: number, message?: RegExp) =>
    berth.fail(env, args, code, message);
  const json = async <T>(...args: string[]): Promise<T> =>
    JSON.parse((await succeed([...args, '--json'])).stdout) as T;

  before(async () => {
    home = await berth.makeHome();
    service = await startService(home.env);
    const admin = (...args: string[]) => berth.succeed(service.env, ['admin', ...args]);
    await admin('org', 'create', 'acme', '--email', 'ops@acme.example');
    const token = (await admin('token', 'create', '--org', 'acme', '--name', 't')).stdout.trim();
    env = { ...home.env, BERTH_URL: service.url, BERTH_TOKEN: token };
    const keyFile = join(home.home, 'key');
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'stolen', '-f', keyFile]);
    publicKeyFile = `${keyFile}.pub`;
    fingerprint = execFileSync('ssh-keygen', ['-lf', keyFile]).toString().split(' ')[1] ?? '';
    for (const _ of [0, 1, 2])
      await succeed(['instance', 'create', '--cpus', '1', '--disk', '2', '--json']);
  });
  after(async () => {
    await home?.remove();
    await service?.stop();
  });

  test('the address book: add, list, remove', async () => {
    assert.match((await succeed(['key', 'book', 'list'])).stdout, /berth key book add/);
    const added = await succeed(['key', 'book', 'add', 'laptop', publicKeyFile]);
    assert.ok(added.stdout.includes(fingerprint));
    await fail(['key', 'book', 'add', 'again', publicKeyFile], 1, /laptop/);
    await fail(['key', 'book', 'add', 'secret', join(home.home, 'key')], 2, /was not sent/);
    const [entry] = await json<{ id: string; name: string }[]>('key', 'book', 'list');
    assert.equal(entry?.name, 'laptop');
    assert.match((await succeed(['key', 'book', 'list'])).stdout, /^NAME .*\nlaptop .*SHA256:/);
    assert.deepEqual(await json('key', 'where', entry?.id ?? ''), []);
    assert.deepEqual(await json('key', 'where', 'laptop'), []);
    await succeed(['key', 'add', '2', '--public-key', 'laptop']);
    await succeed(['key', 'remove', '2', fingerprint]);
    await succeed(['key', 'book', 'remove', 'laptop']);
    await fail(['key', 'book', 'remove', 'laptop'], 4, /berth key book list/);
  });

  test('a key that is nowhere is told so', async () => {
    for (const command of [
      ['key', 'where', fingerprint],
      ['key', 'revoke', fingerprint, '--everywhere', '--yes'],
    ])
      assert.equal((await succeed(command)).stdout, `${fingerprint} is authorized nowhere.\n`);
  });

  test('what names no key is refused', async () => {
    await fail(['key', 'where', 'SHA256:short'], 2, /43 characters/);
    await fail(['key', 'where', join(home.home, 'nothing.pub')], 2, /no such file.*SHA256/);
    await fail(['key', 'where', 'nonsense'], 2, /nonsense cannot be read.*SHA256.*book list/);
    await fail(['key', 'where', '00000000-0000-4000-8000-000000000000'], 4, /address book/);
    await fail(['key', 'revoke', fingerprint], 2, /--everywhere/);
  });

  test('where finds it by file, stdin and fingerprint, by hand or not', async (context) => {
    if (service.noShells) return context.skip(service.noShells);
    const line = await readFile(publicKeyFile, 'utf8');
    await succeed(['key', 'add', '0', '--public-key', publicKeyFile]);
    await succeed(['ssh', '1', '--', `echo '${line.trim()}' >> ~/.ssh/authorized_keys`]);
    for (const [reference, input] of [[fingerprint], [publicKeyFile], ['-', line]] as const) {
      const { stdout } = await succeed(['key', 'where', reference], input);
      assert.match(stdout, /\n0 .*present.*\n1 .*unrecorded.*file/);
      assert.equal(stdout.split('\n').length, 4);
    }
    const table = (await succeed(['key', 'list', '1', '--presence'])).stdout;
    assert.match(table, /unrecorded +full +file/);
    const places = await json<{ presence: string }[]>('key', 'where', fingerprint);
    assert.deepEqual(places.map(({ presence }) => presence).sort(), ['present', 'unknown']);
    await fail(['key', 'revoke', fingerprint, '--everywhere'], 2, /add --yes/);
    assert.deepEqual(await json('key', 'where', fingerprint), places);
  });

  test('revoke takes it off all, with a result each', async (context) => {
    if (service.noShells) return context.skip(service.noShells);
    const revoked = await json<Revoked>('key', 'revoke', publicKeyFile, '--everywhere', '--yes');
    assert.equal(revoked.fingerprint, fingerprint);
    assert.deepEqual(
      revoked.results.map(({ identifier, result }) => [identifier, result]),
      [
        [0, 'removed'],
        [1, 'removed'],
      ],
    );
    assert.deepEqual(await json('key', 'where', fingerprint), []);
    await succeed(['ssh', '1', '--', 'true']);
  });

  test('revoke says so, and exits with 1, where it may be left', async (context) => {
    if (service.noShells) return context.skip(service.noShells);
    const line = (await readFile(publicKeyFile, 'utf8')).trim();
    await succeed(['key', 'add', '0', '--public-key', publicKeyFile]);
    await succeed(['ssh', '2', '--', `echo 'cert-authority ${line}' >> ~/.ssh/authorized_keys`]);
    const args = ['key', 'revoke', fingerprint, '--everywhere', '--yes', '--json'];
    const { stdout } = await fail(args, 1, /1 of 2 instances/);
    const { results } = JSON.parse(stdout) as Revoked;
    assert.deepEqual(
      results.map(({ identifier, result }) => [identifier, result]),
      [
        [0, 'removed'],
        [2, 'failed'],
      ],
    );
    assert.match(results[1]?.message ?? '', /cert-authority/);
  });

  test('snapshots are listed by status, name, instance and size', async () => {
    await succeed(['snapshot', 'create', '0', 'first']);
    await succeed(['snapshot', 'create', '1', 'second']);
    const names = async (...filter: string[]) =>
      (await json<{ name: string }[]>('snapshot', 'list', ...filter)).map(({ name }) => name);
    assert.deepEqual(await names(), ['first', 'second']);
    assert.deepEqual(await names('--status', 'ready', '--fits-gb', '1000'), ['first', 'second']);
    assert.deepEqual(await names('--status', 'FAILED'), []);
    assert.deepEqual(await names('--name', 'second'), ['second']);
    assert.deepEqual(await names('--instance', '0'), ['first']);
    const { stdout } = await succeed(['snapshot', 'list', '--name', 'third']);
    assert.match(stdout, /No snapshot is like that/);
    await fail(['snapshot', 'list', '--status', 'done'], 2, /READY/);
  });
});
