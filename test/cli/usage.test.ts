import assert from 'node:assert/strict';
import { copyFile, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { configPath, readLogin, saveLogin } from '../../src/cli/config-file.ts';
import { findEndpoint } from '../../src/cli/context.ts';
import { processTerminal } from '../../src/cli/terminal.ts';
import { berth, type Environment, launcher, makeHome, run } from './berth.ts';

/** What can be seen of the command line without a service. */

let home: Awaited<ReturnType<typeof makeHome>>;
let loggedIn: Environment;

before(async () => {
  home = await makeHome();
  // A port outside the range from which Linux gives ports to clients, where no service is by custom.
  loggedIn = { ...home.env, BERTH_TOKEN: 'berth_none', BERTH_URL: 'http://127.0.0.1:65534' };
});
after(() => home.remove());

const commands = [
  'serve',
  'admin',
  'admin catalog',
  'admin catalog check',
  'admin image',
  'admin image build',
  'admin image import',
  'admin image list',
  'admin image remove',
  'admin org',
  'admin org create',
  'admin org list',
  'admin org show',
  'admin org delete',
  'admin org quota',
  'admin user',
  'admin user add',
  'admin user list',
  'admin user role',
  'admin user remove',
  'admin token',
  'admin token create',
  'admin token list',
  'admin token revoke',
  'login',
  'logout',
  'instance',
  'instance create',
  'instance list',
  'instance show',
  'instance modify',
  'instance ports',
  'instance delete',
  'instance start',
  'instance stop',
  'key',
  'key add',
  'key list',
  'key remove',
  'key where',
  'key revoke',
  'key book',
  'key book add',
  'key book list',
  'key book remove',
  'specs',
  'ssh',
  'snapshot',
  'snapshot create',
  'snapshot list',
  'snapshot delete',
  'templates',
  'token',
  'token create',
  'token list',
  'token delete',
];

test('every command explains itself with an example', async () => {
  const runs = commands.map(async (command) => {
    const result = await berth(home.env, [...command.split(' '), '--help']);
    assert.equal(result.code, 0, command);
    assert.equal(result.stderr, '');
    assert.match(
      result.stdout,
      new RegExp(`Usage: berth ${command}[\\s\\S]*Examples?:\\n  \\$ `),
      command,
    );
  });
  await Promise.all(runs);
});

test('every usage error exits 2 and goes to stderr', async () => {
  const lines = [
    '',
    'nonsense',
    'instance',
    'instance nonsense',
    'nonsense --help',
    'instance nonsense --help',
    'help nonsense',
    'instance show',
    'instance show 0 1',
    'instance list --nonsense',
    'instance create --cpus many',
    'instance modify 0',
    'instance modify 0 --cpus 0',
    'instance ports 0 --add 65536',
    'instance ports 0 --add',
    'instance create --mode idle',
    'instance create --disk 0',
    'instance create --print --output k',
    'key add',
    'key add 0 --expires-in never',
    'key add 0 --public-key k --print',
    'key add 0 --public-key k --output o',
    'key remove 0',
    'key where',
    'key revoke',
    'key book add laptop',
    'snapshot list --fits-gb big',
    'snapshot create 0',
    'serve --port 65536',
    'admin org create',
    'admin org create acme',
    'admin org quota acme --instances few',
    'admin user add acme a@b',
    'admin user role acme a@b king',
    'admin token create --org acme --name n --scopes root',
    'admin token revoke --org acme',
    'token create',
    'token create ci --scopes root',
    'token create ci --expires-in 90',
    'admin token create --org acme',
    'admin token create --org acme --name n --expires-in 0d',
    'admin token create --org acme --name n --expires-in 90',
    'login --token berth_secret',
  ];
  const runs = lines.map(async (line) => {
    const result = await berth(home.env, line === '' ? [] : line.split(' '));
    assert.equal(result.code, 2, line);
    assert.equal(result.stdout, '', line);
    assert.notEqual(result.stderr, '', line);
    assert.ok(!result.stderr.includes(' at '), line);
  });
  await Promise.all(runs);
});

test('without a login every client command exits 3 and says how to log in', async () => {
  const lines = ['instance list', 'key list 0', 'ssh 0', 'snapshot list', 'instance create'];
  for (const line of lines) {
    const { code, stderr } = await berth(home.env, [
      ...line.split(' '),
      '--url',
      'http://127.0.0.1:65534',
    ]);
    assert.equal(code, 3, line);
    assert.equal(stderr, 'berth: Not logged in: run berth login --url http://127.0.0.1:65534\n');
  }
});

test('an unreachable service exits 5, names the URL and says how to start one', async () => {
  for (const line of ['instance list', 'instance create', 'key add x', 'ssh 0', 'snapshot list']) {
    const { code, stdout, stderr } = await berth(loggedIn, line.split(' '));
    assert.equal(code, 5, line);
    assert.equal(stdout, '');
    assert.match(stderr, /http:\/\/127\.0\.0\.1:65534: connection refused/);
    assert.match(stderr, /npm run quickstart.*berth serve/);
    assert.ok(!stderr.includes('berth_none'));
  }
  await assert.rejects(stat(join(home.home, '.local/share/berth/keys/new')), { code: 'ENOENT' });
});

test('admin makes no data folder where there is none, except for an organization', async () => {
  const data = join(home.home, 'mistyped');
  const args = ['admin', 'token', 'create', '--org', 'acme', '--name', 'n'];
  for (const [env, more] of [
    [home.env, ['--data', data]],
    [{ ...home.env, BERTH_DATA: data }, []],
  ] as const) {
    const { code, stderr } = await berth(env, [...args, ...more]);
    assert.equal(code, 1);
    assert.ok(stderr.includes(`There is no data folder ${data}.`), stderr);
    assert.match(stderr, /--data or BERTH_DATA/);
  }
  await assert.rejects(stat(data), { code: 'ENOENT' });
  const made = ['admin', 'org', 'create', 'acme', '--email', 'ops@acme.example', '--data', data];
  assert.equal((await berth(home.env, made)).code, 0);
  assert.equal((await berth(home.env, [...args, '--data', data])).code, 0);
});

test('a service that cannot start says why, and is no defect', async () => {
  const file = join(home.home, 'a file');
  await writeFile(file, '');
  const cases: [string[], RegExp][] = [
    [['--data', join(file, 'x')], /^berth: The data folder .*x cannot be (written|used) .*--data/],
    [['--data', file], /^berth: The data folder .*file cannot be (written|used) .*--data/],
  ];
  for (const [args, message] of cases) {
    const { code, stderr } = await berth(home.env, ['serve', ...args]);
    assert.equal(code, 1, stderr);
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /defect|\n\s+at /);
  }
});

test('a port that no client may use is named as the reason', async () => {
  const env = { ...loggedIn, BERTH_URL: 'http://127.0.0.1:6000' };
  const { code, stderr } = await berth(env, ['instance', 'list']);
  assert.equal(code, 5);
  assert.match(stderr, /port is one that no HTTP client may use/);
});

test('a login that fails saves nothing, and the token is not repeated', async () => {
  const args = ['login', '--token-stdin', '--url', 'http://127.0.0.1:65534'];
  const { code, stdout, stderr } = await berth(home.env, args, 'berth_secret\n');
  assert.equal(code, 5);
  assert.ok(!(stdout + stderr).includes('berth_secret'));
  await assert.rejects(stat(join(home.home, '.config')), { code: 'ENOENT' });
  assert.equal((await berth(home.env, args, '  \n')).code, 2);
  assert.equal((await berth(home.env, ['login'])).code, 2, 'no terminal to ask on');
});

test('a private key given as a public one never leaves the machine', async () => {
  const path = join(home.home, 'id');
  await writeFile(path, '-----BEGIN OPENSSH PRIVATE KEY-----\nx\n');
  for (const source of [path, '-']) {
    const args = ['key', 'add', '0', '--public-key', source];
    const { code, stderr } = await berth(loggedIn, args, await readFile(path, 'utf8'));
    assert.equal(code, 2);
    assert.match(stderr, /private key.*It was not sent/);
  }
  const missing = await berth(loggedIn, ['key', 'add', '0', '--public-key', `${path}.pub`]);
  assert.equal(missing.code, 2);
  assert.match(missing.stderr, /no such file or directory\. It must be the \.pub file/);
});

test('the launcher follows links, from any folder, with its arguments unchanged', async () => {
  const first = join(home.home, 'link one');
  await symlink(launcher, first);
  const second = join(home.home, 'relative');
  await symlink('link one', second);
  const result = await run(second, ['instance', 'show', 'a  b', '*'], { env: home.env });
  assert.equal(result.code, 2);
  assert.match(result.stderr, /too many arguments/);
  assert.match((await run(first, ['--version'], { env: home.env })).stdout, /^\d+\.\d+\.\d+\n$/);
});

test('the launcher says what to run when the packages are missing', async () => {
  const bin = join(home.home, 'checkout', 'bin');
  await mkdir(bin, { recursive: true });
  await copyFile(launcher, join(bin, 'berth'));
  const { code, stderr } = await run(join(bin, 'berth'), ['--help'], { env: home.env });
  assert.equal(code, 1);
  assert.match(stderr, /npm run quickstart \(or npm ci\)/);
});

test('the login file: private, whole, and under XDG_CONFIG_HOME when that is set', async () => {
  const env = { HOME: home.home, XDG_CONFIG_HOME: join(home.home, 'xdg') };
  assert.equal(await readLogin(env), undefined);
  const login = { url: 'http://h', token: 'berth_t' };
  const path = await saveLogin(env, login);
  assert.equal(path, join(home.home, 'xdg/berth/config.json'));
  assert.deepEqual(await readLogin(env), login);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.equal((await stat(join(path, '..'))).mode & 0o777, 0o700);
  await writeFile(path, '{"url": 1}');
  await assert.rejects(readLogin(env), /is damaged/);
  assert.equal(
    configPath({ HOME: '/h', XDG_CONFIG_HOME: 'relative' }),
    '/h/.config/berth/config.json',
  );
});

test('flag, environment, login, this machine: in this order', async () => {
  const env = { HOME: join(home.home, 'order') };
  const terminal = { ...processTerminal, env };
  assert.deepEqual(await findEndpoint(terminal, {}), {
    url: 'http://127.0.0.1:8080',
    token: undefined,
  });
  await saveLogin(env, { url: 'http://saved/', token: 'berth_saved' });
  assert.deepEqual(await findEndpoint(terminal, {}), {
    url: 'http://saved/',
    token: 'berth_saved',
  });
  const set = { ...terminal, env: { ...env, BERTH_URL: 'http://env', BERTH_TOKEN: 'berth_env' } };
  assert.deepEqual(await findEndpoint(set, {}), { url: 'http://env', token: 'berth_env' });
  assert.deepEqual(await findEndpoint(set, { url: 'http://flag' }), {
    url: 'http://flag',
    token: 'berth_env',
  });
});

test('a saved token is not shown to another service', async () => {
  const env = { HOME: join(home.home, 'other') };
  const terminal = { ...processTerminal, env };
  await saveLogin(env, { url: 'http://saved', token: 'berth_saved' });
  assert.equal((await findEndpoint(terminal, { url: 'http://evil' })).token, undefined);
  assert.equal((await findEndpoint(terminal, { url: 'http://saved/' })).token, 'berth_saved');
});
