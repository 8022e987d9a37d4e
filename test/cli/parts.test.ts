import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { ApiError, UnreachableError } from '../../src/api/client.ts';
import { sshArguments } from '../../src/cli/commands/ssh.ts';
import { CliError, explainFailure } from '../../src/cli/exit-codes.ts';
import { poll } from '../../src/cli/instances.ts';
import {
  integerBetween,
  parseLifetimeSeconds,
  parseTokenLifetimeSeconds,
} from '../../src/cli/options.ts';
import { alignColumns, printable, readableTime, shellWord } from '../../src/cli/output.ts';
import { explainStart } from '../../src/cli/start-failures.ts';
import { processTerminal, type Terminal } from '../../src/cli/terminal.ts';
import { AppError, notFound } from '../../src/domain/errors.ts';

test('lifetimes: units, and the bounds of the service', () => {
  const good = { '90': 90, '60s': 60, '1m': 60, '2h': 7200, '30d': 2_592_000, '365d': 31_536_000 };
  for (const [text, seconds] of Object.entries(good)) {
    assert.equal(parseLifetimeSeconds(text), seconds);
  }
  for (const text of ['', '59', '0d', '366d', '-5', '1.5h', '2 h', '2w', '1e9']) {
    assert.throws(() => parseLifetimeSeconds(text), { code: 'commander.invalidArgument' }, text);
  }
});

test('the lifetime of a token has a unit, and may be longer', () => {
  assert.equal(parseTokenLifetimeSeconds('2h'), 7200);
  assert.equal(parseTokenLifetimeSeconds('90d'), 7_776_000);
  assert.equal(parseTokenLifetimeSeconds('36500d'), 3_153_600_000);
  for (const text of ['', '90', '0d', '36501d', '59s', '1w']) {
    assert.throws(() => parseTokenLifetimeSeconds(text), /with a unit/, text);
  }
});

test('whole numbers within bounds', () => {
  const parse = integerBetween(0, 65_535);
  assert.deepEqual(['0', '007', '65535'].map(parse), [0, 7, 65_535]);
  for (const text of ['', '-1', '65536', '1.0', '0x10', '1e3', ' 1'])
    assert.throws(() => parse(text), text);
});

test('tables are aligned, and an empty cell shows', () => {
  const lines = alignColumns([
    ['ID', 'NAME', 'SSH'],
    ['10', 'brave-otter', ''],
  ]);
  assert.deepEqual(lines, ['ID  NAME         SSH', '10  brave-otter  -']);
});

test('a text from elsewhere cannot steer the terminal', () => {
  assert.equal(printable('a\u001b[31m\r\u0007\u009b\u202eb\nc'), 'a?[31m????b\nc');
});

test('a path can be pasted into a shell', () => {
  assert.equal(shellWord('/home/me/.local/key-2'), '/home/me/.local/key-2');
  for (const path of ["/a b/it's", '$HOME', '`x`', '', '~/key']) {
    const echoed = execFileSync('sh', ['-c', `printf %s ${shellWord(path)}`], { encoding: 'utf8' });
    assert.equal(echoed, path);
  }
});

test('times are local and readable', () => {
  assert.match(readableTime(1_763_600_000), /^2025-11-(19|20) \d\d:\d\d$/);
  assert.equal(readableTime('2025-11-20T00:53:20Z'), readableTime(1_763_600_000));
  assert.equal(readableTime(undefined), '');
  assert.equal(readableTime('soon'), 'soon');
});

test('every failure has its exit code', () => {
  const cases: [unknown, number][] = [
    [new ApiError(401, 'unauthorized', 'm'), 3],
    [new ApiError(403, 'forbidden', 'm'), 3],
    [new ApiError(404, 'not_found', 'm'), 4],
    [new ApiError(409, 'conflict', 'm'), 1],
    [new ApiError(500, 'internal', 'm'), 1],
    [new UnreachableError('http://h', 'connection refused'), 5],
    [new CliError('m'), 1],
    [new CliError('m', 2), 2],
    [notFound('Organization', 'x'), 4],
    [new AppError('conflict', 'm'), 1],
    [new Error('m'), 1],
  ];
  for (const [error, exitCode] of cases) assert.equal(explainFailure(error).exitCode, exitCode);
});

test('what stops the service from starting is told without a stack', () => {
  const env = { BERTH_DATA: '/data/berth' };
  const engineError = Object.assign(new TypeError('No bubblewrap.'), { name: 'EngineError' });
  const denied = { errno: -13, code: 'EACCES', syscall: 'mkdir', path: '/data/berth' };
  const cases: [unknown, string][] = [
    [engineError, 'No bubblewrap.'],
    [
      Object.assign(new Error('EACCES: permission denied'), denied),
      'The data folder /data/berth cannot be written (permission denied). Choose another with --data.',
    ],
  ];
  for (const [error, text] of cases) {
    assert.deepEqual(explainFailure(explainStart(error, env)), { exitCode: 1, text });
  }
  assert.match(explainFailure(explainStart(new TypeError('m'), env)).text ?? '', /defect/);
});

test('who is refused a token hears which one it was', () => {
  const refusal = new ApiError(401, 'unauthorized', 'm');
  assert.equal(explainFailure(refusal).text, 'm\nLog in again with: berth login');
  assert.match(explainFailure(refusal, { BERTH_TOKEN: 't' }).text ?? '', /unset BERTH_TOKEN$/);
});

test('an expected failure has no stack trace, and an unreachable service a way out', () => {
  assert.equal(explainFailure(new ApiError(409, 'conflict', 'Taken.')).text, 'Taken.');
  const { text } = explainFailure(new UnreachableError('http://h', 'connection refused'));
  assert.match(text ?? '', /http:\/\/h[\s\S]*npm run quickstart[\s\S]*berth serve/);
});

const target = {
  ip: '127.0.0.1',
  port: 22_001,
  keyPath: '/home/a b/100%/key',
  knownHostsPath: '/home/a b/100%/known_hosts',
  instanceUuid: '6f7cbb38-8b9b-4c0e-9d38-0f2f5f5f0a01',
};

test('ssh itself reads the arguments as they are meant', () => {
  const printed = execFileSync('ssh', ['-G', ...sshArguments(target, [])], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const lines = printed.split('\n');
  for (const line of [
    'user ubuntu',
    'hostname 127.0.0.1',
    'port 22001',
    'identitiesonly yes',
    'stricthostkeychecking accept-new',
    `hostkeyalias ${target.instanceUuid}`,
    `userknownhostsfile ${target.knownHostsPath}`,
    `identityfile ${target.keyPath.replace('%', '%%')}`,
  ]) {
    assert.ok(lines.includes(line), `${line} in:\n${printed}`);
  }
});

test('what the user adds for ssh comes last and unchanged', () => {
  const args = sshArguments(target, ['-L', '1:h:2', 'ls', '-l']);
  assert.deepEqual(args.slice(-5), ['ubuntu@127.0.0.1', '-L', '1:h:2', 'ls', '-l']);
});

/** A terminal whose clock moves only by sleeping. */
function sleeper(): Terminal & { slept: () => number } {
  let elapsedMs = 0;
  const sleep = async (durationMs: number) => {
    elapsedMs += durationMs;
  };
  return { ...processTerminal, now: () => elapsedMs, sleep, slept: () => elapsedMs };
}

test('polling survives a restart of the service, but not its absence', async () => {
  const outage = new UnreachableError('http://h', 'connection refused');
  let asked = 0;
  const backSoon = async () => {
    asked += 1;
    if (asked < 5) throw outage;
    return 'ready';
  };
  assert.equal(await poll(sleeper(), 'look', backSoon), 'ready');
  const terminal = sleeper();
  await assert.rejects(
    poll(terminal, 'look', () => Promise.reject(outage)),
    outage,
  );
  assert.ok(terminal.slept() >= 30_000 && terminal.slept() < 32_000);
});

test('polling gives up after ten minutes, and other errors end it at once', async () => {
  await assert.rejects(
    poll(sleeper(), 'berth instance show 0', async () => undefined),
    /Look again with: berth instance show 0/,
  );
  const refusal = new ApiError(404, 'not_found', 'm');
  const terminal = sleeper();
  await assert.rejects(
    poll(terminal, 'look', () => Promise.reject(refusal)),
    refusal,
  );
  assert.equal(terminal.slept(), 0);
});
