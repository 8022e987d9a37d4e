/** `berth admin engine`: what an operator is told about the engine, and what a script can go by. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { describeLeftovers } from '../../src/admin-engine.ts';
import type { Finding } from '../../src/domain/findings.ts';
import { serveAnswers } from '../support/incus-answers.ts';
import { type Environment, fail, makeHome, succeed } from './berth.ts';

let home: Awaited<ReturnType<typeof makeHome>>;
let env: Environment;
/** What a server of Incus would say: `metadata` by path. */
let answers: Record<string, unknown>;

const server = serveAnswers(() => answers);

before(async () => {
  home = await makeHome();
  const socket = join(home.home, 'incus.socket');
  env = { ...home.env, BERTH_ENGINE: 'incus', BERTH_INCUS_URL: `unix:${socket}` };
  await new Promise<void>((resolve) => {
    server.listen(socket, resolve);
  });
});
after(async () => {
  server.close();
  await home.remove();
});

beforeEach(() => {
  const environment = {
    server_name: 'lab1',
    server_version: '6.0.4',
    server_clustered: false,
    driver: 'lxc',
  };
  const config = { 'ipv4.address': '10.213.0.1/20', 'ipv4.nat': 'true' };
  const space = { used: 2 ** 30, total: 100 * 2 ** 30 };
  answers = {
    '/1.0': { auth: 'trusted', environment },
    '/1.0/storage-pools/berth': { name: 'berth', driver: 'zfs', status: 'Created', config: {} },
    '/1.0/storage-pools/berth/resources': { space },
    '/1.0/networks/berthbr0': { name: 'berthbr0', type: 'bridge', managed: true, config },
    '/1.0/images/aliases': [],
  };
});

const check = ['admin', 'engine', 'check'];

test('a line for each finding, and exit code 1 when something needed is missing', async () => {
  const { stdout } = await fail(env, check, 1, /missing that the incus engine needs/);
  assert.match(stdout, /^good +network +"berthbr0": 10\.213\.0\.1\/20, room for 1000 SSH ports$/m);
  assert.match(stdout, /^weak +isolation +/m);
  assert.match(
    stdout,
    /^missing +templates +there are none\. Make the default: berth admin image build$/m,
  );
});

test('the same as JSON', async () => {
  const { stdout } = await fail(env, [...check, '--json'], 1);
  const report = JSON.parse(stdout) as { engine: string; ok: boolean; findings: Finding[] };
  assert.deepEqual([report.engine, report.ok], ['incus', false]);
  const missing = report.findings.find(({ topic }) => topic === 'templates');
  assert.deepEqual(missing, {
    topic: 'templates',
    state: 'missing',
    found: 'there are none',
    advice: 'Make the default: berth admin image build',
  });
});

test('what the data do not know is named with the command to remove it, and is no failure', async () => {
  const left = ['berth-i-left', 'berth-s-left', 'somebody-else'];
  answers['/1.0/instances'] = left.map((name) => ({ name, project: 'default' }));
  const data = join(home.home, 'data');
  const own = { ...env, BERTH_DATA: data };
  await succeed(own, ['admin', 'org', 'create', 'acme', '--email', 'ops@acme.example']);
  assert.doesNotMatch((await fail(own, check, 1, /./)).stdout, /leftovers/, 'data of no engine');
  writeFileSync(join(data, 'engine'), 'incus\n');
  const { stdout } = await fail(own, check, 1, /One thing is missing/);
  assert.match(stdout, /^weak +leftovers +.*incus delete --force berth-i-left berth-s-left$/m);
});

test('where there are no data yet, what an earlier Berth left is told with its project', async () => {
  const left = [{ name: 'berth-i-left', project: 'lab' }];
  answers['/1.0/instances'] = left;
  const fresh = { ...env, BERTH_DATA: join(home.home, 'none') };
  assert.match(
    (await describeLeftovers(fresh)) ?? '',
    /incus --project lab delete --force \S+left$/,
  );
  answers['/1.0/instances'] = [{ name: 'somebody-else', project: 'default' }];
  assert.equal(await describeLeftovers(fresh), undefined);
});

test('an Incus that does not answer is the only finding, and exit code 1', async () => {
  const nowhere = { ...env, BERTH_INCUS_URL: `unix:${home.home}/nothing` };
  const { stdout } = await fail(nowhere, check, 1, /One thing is missing/);
  assert.match(stdout, /^missing +API +no answer from unix:.* \(ENOENT\)\. Start it/);
  assert.equal(stdout.trimEnd().split('\n').length, 1);
  await fail(nowhere, ['admin', 'engine', 'guard'], 1, /cannot be reached/);
});

test('the rules of the bridge name every guest of the range', async () => {
  const range = { ...env, BERTH_SSH_PORTS: '22000-22002' };
  const { stdout } = await succeed(range, ['admin', 'engine', 'guard']);
  assert.match(stdout, /table bridge berth-berthbr0/);
  for (const last of ['0a', '0b', '0c']) assert.match(stdout, new RegExp(`02:be:0a:d5:00:${last}`));
  assert.doesNotMatch(stdout, /02:be:0a:d5:00:0d/);
});

test('the sandbox is looked at, too, and an engine that is none is a usage error', async () => {
  const { stdout } = await succeed(home.env, [...check, '--json']);
  const report = JSON.parse(stdout) as { engine: string; findings: Finding[] };
  assert.equal(report.engine, 'sandbox');
  assert.ok(report.findings.some(({ topic }) => topic === 'isolation'));
  await fail(home.env, [...check, '--engine', 'none'], 2, /sandbox, incus/);
});
