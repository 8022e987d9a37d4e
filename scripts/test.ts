/**
 * `npm test`: sets up what the tests need and runs them all, first with the sandbox engine, then what goes for every
 * engine on Incus. Arguments are files or folders of tests, options of node's runner, and:
 *   --quick           what tells most in three minutes; it says what it left out
 *   --engine=NAME     only the tests of this engine; with incus, an Incus that cannot be had is an error
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { join } from 'node:path';
import type { PrivateIncus } from '../test/support/incus-host.ts';
import { ensureSystemPackages } from './system-packages.ts';
import {
  type EngineName,
  leftOutByQuick,
  missingAmong,
  type Pass,
  planPasses,
} from './test-passes.ts';
import type { Totals } from './test-totals.ts';

interface Outcome extends Totals {
  readonly code: number;
}

const say = (line: string) => process.stdout.write(`${line}\n`);
const startedAt = performance.now();
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const killAfterMs = 20_000;

/** What runs now; a signal goes there, and what was made is removed on the way out. */
let running: ChildProcess | undefined;
let interrupted: (typeof signals)[number] | undefined;
let removeIncus = async (): Promise<void> => {};

for (const signal of signals)
  process.on(signal, () => {
    interrupted ??= signal;
    const child = running;
    if (child === undefined) return void leave(exitCodeOf(signal));
    child.kill('SIGTERM');
    setTimeout(() => child.kill('SIGKILL'), killAfterMs).unref();
  });

const exitCodeOf = (signal: NodeJS.Signals): number => 128 + constants.signals[signal];

async function leave(code: number): Promise<never> {
  await removeIncus();
  process.exit(code);
}

/** One run of node's runner over these files. */
async function runPass(
  { engine, files, width }: Pass,
  options: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<Outcome> {
  const reporters = [
    ...['--test-reporter=spec', '--test-reporter-destination=stdout'],
    ...[`--test-reporter=${join(import.meta.dirname, 'test-totals.ts')}`],
    ...['--test-reporter-destination=stderr'],
  ];
  const runner = ['--test', ...reporters, `--test-concurrency=${width}`, '--test-timeout=600000'];
  const child = spawn(process.execPath, [...runner, ...options, ...files], {
    stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
    env: { ...process.env, BERTH_TEST_ENGINE: engine, ...environment },
  });
  running = child;
  let totals = '';
  child.stdio[3]?.on('data', (chunk: Buffer) => {
    totals += chunk;
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  running = undefined;
  return { ...readTotals(totals), code: code ?? exitCodeOf(signal ?? 'SIGKILL') };
}

/** Of a pass that did not come to its end there are none: something failed. */
function readTotals(text: string): Totals {
  try {
    return JSON.parse(text) as Totals;
  } catch {
    return { tests: 1, passed: 0, failed: 1, skipped: 0 };
  }
}

/** Why Incus cannot be had here; otherwise the one that was started. */
async function openIncus(): Promise<string | PrivateIncus> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0)
    return 'Incus is started by root only, and this is not root';
  const { ensureIncusPackages } = await import('./incus-packages.ts');
  if (!ensureIncusPackages(say)) return 'Incus is not installed and could not be';
  const { openPrivateIncus } = await import('../test/support/incus-host.ts');
  try {
    const incus = await openPrivateIncus(say);
    removeIncus = incus.remove;
    return incus;
  } catch (error) {
    return `Incus could not be started: ${error instanceof Error ? error.message : error}`;
  }
}

async function runOnIncus(pass: Pass, options: readonly string[]): Promise<Outcome> {
  const incus = await openIncus();
  if (typeof incus !== 'string') {
    const outcome = await runPass(pass, options, incus.environment);
    const lastWords = incus.lastWords();
    if (lastWords === undefined) return outcome;
    say(`\nIncus died while the tests ran. Its log ends:\n${lastWords}\n`);
    return { ...outcome, code: outcome.code || 1 };
  }
  const skipped = pass.files.length;
  say(`\nSKIPPING ALL OF INCUS (${skipped} test files): ${incus}.\n`);
  const isWanted = engine === 'incus';
  return { tests: skipped, passed: 0, failed: 0, skipped, code: isWanted ? 1 : 0 };
}

function summarize(outcomes: readonly Outcome[]): number {
  const sum = (count: (outcome: Outcome) => number): number =>
    outcomes.reduce((total, outcome) => total + count(outcome), 0);
  const code = interrupted
    ? exitCodeOf(interrupted)
    : (outcomes.find((outcome) => outcome.code !== 0)?.code ?? 0);
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  const [tests, passed] = [sum((one) => one.tests), sum((one) => one.passed)];
  const [failed, skipped] = [sum((one) => one.failed), sum((one) => one.skipped)];
  const verdict = interrupted ? `INTERRUPTED by ${interrupted}` : code === 0 ? 'OK' : 'FAILED';
  if (quick) say(`Left out by --quick: ${leftOutByQuick}.`);
  say(
    `${verdict}: ${tests} tests in ${outcomes.length} passes, ${passed} passed, ${failed} failed, ` +
      `${skipped} skipped, ${Math.floor(seconds / 60)} min ${seconds % 60} s.`,
  );
  return code;
}

const own = /^--(?:quick|engine=(sandbox|incus))$/;
const given = process.argv.slice(2);
const quick = given.includes('--quick');
const engine = given.map((word) => own.exec(word)?.[1]).find((name) => name) as
  | EngineName
  | undefined;
const options = given.filter((word) => word.startsWith('-') && !own.test(word));
const paths = given.filter((word) => !word.startsWith('-'));

if (!ensureSystemPackages(say))
  say('Going on: the tests that need these are skipped and counted as skipped.');

const missing = missingAmong(paths);
const passes = planPasses({ paths, quick, engine });
if (missing.length > 0 || passes.length === 0) {
  say(`There is no such test: ${(missing.length > 0 ? missing : given).join(' ')}`);
  process.exit(2);
}
const outcomes: Outcome[] = [];
for (const pass of passes) {
  if (interrupted) break;
  say(`\nRunning ${pass.files.length} test files with the engine "${pass.engine}" ...`);
  outcomes.push(
    pass.engine === 'incus' ? await runOnIncus(pass, options) : await runPass(pass, options, {}),
  );
}
await leave(summarize(outcomes));
