/**
 * `npm test`: sets up what the tests need and runs them all. Arguments are files or folders of tests, and options
 * of node's runner: `npm test -- test/unit`.
 */
import { spawnSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { ensureSystemPackages } from './system-packages.ts';

const say = (line: string) => process.stdout.write(`${line}\n`);
if (!ensureSystemPackages(say))
  say('Going on: the tests that need these are skipped and counted as skipped.');

const given = process.argv.slice(2);
const options = given.filter((argument) => argument.startsWith('-'));
const paths = given.filter((argument) => !argument.startsWith('-'));
const patterns = (paths.length > 0 ? paths : ['test']).map((path) =>
  statSync(path, { throwIfNoEntry: false })?.isDirectory()
    ? `${path.replace(/\/$/, '')}/**/*.test.ts`
    : path,
);

say(`Running ${patterns.join(' ')} ...`);
const runner = ['--test', '--test-reporter=spec', '--test-concurrency=2', '--test-timeout=600000'];
const { status } = spawnSync(process.execPath, [...runner, ...options, ...patterns], {
  stdio: 'inherit',
});
process.exit(status ?? 1);
