/** `berth` with tokens that may change things but not look at instances, and the ephemeral disk. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../support/waiting.ts';
import * as berth from './berth.ts';
import { type Service, startService } from './service.ts';

describe('without the scope to look', () => {
  let home: Awaited<ReturnType<typeof berth.makeHome>>;
  let service: Service;
  let full: berth.Environment;
  let uuid: string;

  const keysDirectory = () => join(home.home, '.local/share/berth/keys');
  const only = async (scopes: string): Promise<berth.Environment> => {
    const name = scopes.replaceAll(/[^a-z]/g, '-');
    const make = ['token', 'create', name, '--scopes', scopes];
    return { ...full, BERTH_TOKEN: (await berth.succeed(full, make)).stdout.trim() };
  };

  before(async () => {
    home = await berth.makeHome();
    service = await startService(home.env);
    const admin = (...args: string[]) => berth.succeed(service.env, ['admin', ...args]);
    await admin('org', 'create', 'acme', '--email', 'ops@acme.example');
    const token = (await admin('token', 'create', '--org', 'acme', '--name', 't')).stdout.trim();
    full = { ...home.env, BERTH_URL: service.url, BERTH_TOKEN: token };
  });
  after(async () => {
    await service?.stop();
    await home?.remove();
  });

  test('an ephemeral disk can be asked for, and is shown and told of', async () => {
    const create = ['instance', 'create', '--disk', '2', '--ephemeral-disk', '3', '--json'];
    uuid = (JSON.parse((await berth.succeed(full, create)).stdout) as { uuid: string }).uuid;
    const show = ['instance', 'show', '0'];
    assert.match((await berth.succeed(full, show)).stdout, /\nEphemeral disk +3 GB\n/);
    const modify = ['instance', 'modify', '0', '--ephemeral-disk', '4'];
    assert.match((await berth.succeed(full, modify)).stdout, /, an ephemeral disk of 4 GB, cpu x1/);
  });

  test('keys are added and removed by number and UUID', async () => {
    const env = await only('keys:write');
    await rm(keysDirectory(), { recursive: true });
    const ends = ['--expires-in', '2h'];
    await berth.succeed(env, ['key', 'add', '0']);
    await berth.succeed(env, ['key', 'add', '0']);
    await berth.succeed(env, ['key', 'add', uuid.toUpperCase()]);
    await berth.succeed(env, ['key', 'add', '0', ...ends]);
    const names = (await readdir(keysDirectory())).sort();
    assert.deepEqual(names.slice(0, 3), [uuid, `${uuid}-2`, `${uuid}-3`]);
    assert.match(names[3] ?? '', new RegExp(`^${uuid}\\.until-[0-9]+$`));
    const output = join(home.home, 'made');
    const { stdout } = await berth.succeed(env, ['key', 'add', '0', '--output', output]);
    assert.match(stdout, /The private key is in /);
    const fingerprint = execFileSync('ssh-keygen', ['-lf', output]).toString().split(' ')[1] ?? '';
    await berth.succeed(env, ['key', 'remove', '0', fingerprint]);
    await berth.fail(env, ['key', 'remove', uuid, fingerprint], 4);
    await berth.fail(env, ['key', 'add', 'a-name'], 3, /instances:read/);
  });

  test('snapshots are made by number and UUID', async () => {
    const env = await only('snapshots:read,snapshots:write');
    await berth.succeed(env, ['snapshot', 'create', '0', 'first']);
    const writeOnly = await only('snapshots:write');
    await berth.succeed(writeOnly, ['snapshot', 'create', uuid, 'second', '--no-wait']);
    await eventually('the end of the copy', 60_000, async () => {
      const { stdout } = await berth.succeed(full, ['instance', 'show', '0', '--json']);
      return (JSON.parse(stdout) as { status: string }).status === 'RUNNING' ? true : undefined;
    });
  });

  test('instances are changed, stopped, started and deleted', async () => {
    const env = await only('instances:write');
    const modified = await berth.succeed(env, ['instance', 'modify', '0', '--cpus', '2']);
    assert.equal(modified.stdout, 'Instance 0 is as you asked.\n');
    await berth.succeed(env, ['instance', 'ports', '0', '--remove', '8000']);
    const stopped = await berth.succeed(env, ['instance', 'stop', '0', '--no-wait']);
    assert.match(stopped.stdout, /Instance 0 is being stopped/);
    await berth.succeed(full, ['instance', 'stop', uuid]);
    await berth.fail(env, ['instance', 'start', '0'], 3, /accepted.*instances:read.*--no-wait/);
    await berth.succeed(full, ['instance', 'start', '0']);
    const deleted = await berth.succeed(env, ['instance', 'delete', '0']);
    assert.match(deleted.stderr, /keys saved for it stay in/);
    await stat(join(keysDirectory(), uuid));
  });
});
