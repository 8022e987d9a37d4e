/** `berth admin` on the data of this machine, without a service and beside one, and `berth token`. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventually } from '../support/waiting.ts';
import { type Environment, fail, makeHome, succeed } from './berth.ts';
import { type Service, startService } from './service.ts';

let home: Awaited<ReturnType<typeof makeHome>>;
let service: Service;
/** Data of its own, that no service has ever seen. */
let alone: Environment;

before(async () => {
  home = await makeHome();
  alone = { ...home.env, BERTH_DATA: `${home.home}/data` };
  service = await startService(home.env);
});
after(async () => {
  await service?.stop();
  await home?.remove();
});

const words = (line: string) => line.split(' ');
const admin = (env: Environment, line: string) => succeed(env, words(`admin ${line}`));
const refused = (env: Environment, line: string, code: number, message?: RegExp) =>
  fail(env, words(`admin ${line}`), code, message);

async function json<T>(env: Environment, line: string): Promise<T> {
  return JSON.parse((await admin(env, `${line} --json`)).stdout) as T;
}

const asUser = (token: string): Environment => ({
  ...home.env,
  BERTH_URL: service.url,
  BERTH_TOKEN: token,
});

for (const [where, envOf] of [
  ['without a service', () => alone],
  ['beside a running one', () => service.env],
] as const) {
  test(`organizations, members and quotas, ${where}`, async () => {
    const env = envOf();
    await admin(env, 'org create acme --email ops@acme.example');
    await admin(env, 'org create other --email ops@other.example');
    await refused(env, 'org create acme --email x@y', 1, /exists already/);
    const listed = await json<{ name: string }[]>(env, 'org list');
    assert.deepEqual(
      listed.map((one) => one.name),
      ['acme', 'other'],
    );
    assert.match((await admin(env, 'org list')).stdout, /^NAME .*\nacme +1 +0 +0 +0 /);

    await admin(env, 'org quota acme --instances 2 --disk-gb 100');
    await admin(env, 'org quota acme --snapshots 0 --instances none');
    const use = { instances: 0, cpu_cores: 0, disk_gb: 0, snapshots: 0 };
    const limits = { instances: null, cpu_cores: null, disk_gb: 100, snapshots: 0 };
    assert.deepEqual(await json(env, 'org quota acme'), { limits, use });
    assert.match((await admin(env, 'org quota acme')).stdout, /^disk_gb +0 +100$/m);
    for (const limit of ['-1', '1.5', 'many', ''])
      await fail(env, ['admin', 'org', 'quota', 'acme', '--instances', limit], 2, /whole number/);

    await admin(env, 'user add acme ann@acme.example --role member');
    await refused(env, 'user add acme ann@acme.example --role viewer', 1, /member already/);
    await refused(env, 'user add acme ann@acme.example --role king', 2, /owner, member, viewer/);
    await refused(env, 'user add acme ann@acme.example', 2, /--role/);
    await admin(env, 'user role acme ann@acme.example viewer');
    const members = await json<{ email: string; role: string }[]>(env, 'user list acme');
    assert.deepEqual(
      members.map(({ email, role }) => `${email} ${role}`),
      ['ops@acme.example owner', 'ann@acme.example viewer'],
    );
    await refused(env, 'user role acme ops@acme.example member', 1, /last owner/);
    await refused(env, 'user remove acme ops@acme.example', 1, /last owner/);
    await admin(env, 'user role acme ann@acme.example owner');
    await admin(env, 'user remove acme ops@acme.example');
    await admin(env, 'org delete other');
    await refused(env, 'org show other', 4, /"other" was not found/);
  });

  test(`tokens, ${where}`, async () => {
    const env = envOf();
    await admin(env, 'org create lab --email you@lab.example');
    await admin(env, 'user add lab ann@lab.example --role viewer');
    const { stdout } = await admin(env, 'token create --org lab --name all --expires-in 90d');
    assert.match(stdout, /^berth_[0-9a-f]{72}\n$/);
    const some = '--scopes snapshots:read --user ann@lab.example';
    await admin(env, `token create --org lab --name some ${some}`);
    await refused(env, `token create --org lab --name some ${some}`, 1, /exists already/);
    const tooMuch = '--user ann@lab.example --scopes instances:read,keys:write';
    await refused(env, `token create --org lab --name x ${tooMuch}`, 1, /"keys:write".*viewer/);
    await refused(env, 'token create --org lab --name x --scopes root', 2, /"root" is no scope/);
    await refused(env, 'token create --org lab --name x --user no@body', 4, /no@body/);
    const listed = await json<{ name: string; scopes: string[]; email: string }[]>(
      env,
      'token list --org lab',
    );
    assert.deepEqual(
      listed.map(({ name, scopes, email }) => [name, scopes, email]),
      [
        ['all', ['admin'], 'you@lab.example'],
        ['some', ['snapshots:read'], 'ann@lab.example'],
      ],
    );
    const table = (await admin(env, 'token list --org lab')).stdout;
    assert.ok(!table.includes(stdout.trim()) && table.includes(stdout.slice(0, 14)));
    await admin(env, 'token revoke --org lab --name some');
    await refused(env, 'token revoke --org lab --name some', 4, /"some" was not found/);
    for (const line of ['org show', 'org quota', 'org delete', 'user list', 'token list --org'])
      await refused(env, `${line} nobody`, 4, /"nobody" was not found/);
  });
}

test('a running service follows within the second that it remembers a token', async () => {
  const env = service.env;
  await admin(env, 'org create live --email you@live.example');
  await admin(env, 'user add live ann@live.example --role owner');
  const created = 'token create --org live --name ann --user ann@live.example';
  const token = (await admin(env, created)).stdout.trim();
  const audit = async () => {
    const headers = { authorization: `Bearer ${token}` };
    return (await fetch(`${service.url}/v1/audit`, { headers })).status;
  };
  const becomes = (status: number) =>
    eventually(`a ${status}`, 10_000, async () => (await audit()) === status || undefined);
  assert.equal(await audit(), 200);
  await admin(env, 'user role live ann@live.example viewer');
  await becomes(403);
  await succeed(asUser(token), ['snapshot', 'list']);
  await admin(env, 'user remove live ann@live.example');
  await becomes(401);
  assert.equal((await json<unknown[]>(env, 'token list --org live')).length, 0);
});

test('a quota of the operator is a refusal that names it to the user', async () => {
  const env = service.env;
  await admin(env, 'org create tight --email you@tight.example');
  await admin(env, 'org quota tight --instances 0');
  const user = asUser((await admin(env, 'token create --org tight --name t')).stdout.trim());
  await fail(user, ['instance', 'create'], 1, /quota "instances".*limit is 0/);
});

test('berth token: made, listed, ended, and never more than its maker', async () => {
  const env = service.env;
  await admin(env, 'org create users --email you@users.example');
  const user = asUser((await admin(env, 'token create --org users --name root')).stdout.trim());
  const scopes = ['--scopes', 'instances:read,keys:write', '--expires-in', '30d'];
  const made = await succeed(user, ['token', 'create', 'ci', ...scopes]);
  assert.match(made.stdout, /^berth_[0-9a-f]{72}\n$/);
  const ci = asUser(made.stdout.trim());
  await fail(ci, words('token create more --scopes admin'), 3, /"admin"/);
  await fail(ci, words('token create more --expires-in 60d'), 1, /expires_in_seconds/);
  await fail(ci, words('token create more --scopes instances'), 2, /"instances" is no scope/);
  await fail(ci, words('token delete root'), 3, /admin/);
  const list = (await succeed(user, ['token', 'list'])).stdout;
  assert.match(list, /^NAME .*SCOPES\n/);
  assert.match(list, /^ci .* instances:read,keys:write$/m);
  const listed = JSON.parse((await succeed(ci, words('token list --json'))).stdout);
  assert.deepEqual(listed[1].scopes, ['instances:read', 'keys:write']);
  await succeed(ci, ['token', 'delete', 'ci']);
  await fail(ci, ['token', 'list'], 3);
  await fail(user, ['token', 'delete', 'ci'], 4, /"ci" was not found/);
});

test('what an operator does stands in the audit log of the organization', async () => {
  const env = service.env;
  await admin(env, 'org create watched --email you@watched.example');
  await admin(env, 'org quota watched --cpu-cores 8 --disk-gb none');
  await admin(env, 'user add watched ann@watched.example --role member');
  await admin(env, 'user role watched ann@watched.example owner');
  await admin(env, 'user remove watched ann@watched.example');
  const token = (await admin(env, 'token create --org watched --name t')).stdout.trim();
  await admin(env, 'token create --org watched --name gone');
  await admin(env, 'token revoke --org watched --name gone');
  const headers = { authorization: `Bearer ${token}` };
  const text = await (await fetch(`${service.url}/v1/audit`, { headers })).text();
  for (const line of [
    /org\.create[^{}]*watched/,
    /org\.quota[^{}]*cpu_cores=8 disk_gb=none/,
    /user\.add[^{}]*ann@watched\.example member/,
    /user\.role[^{}]*ann@watched\.example owner/,
    /user\.remove[^{}]*ann@watched\.example/,
    /token\.create[^{}]*gone/,
    /token\.delete[^{}]*gone/,
  ])
    assert.match(text, line);
  assert.ok(!text.includes(token.slice(14)));
});
