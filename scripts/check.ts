/** `npm run check`: format, lint, types, import table. With `--fix` it formats. */
import { spawnSync } from 'node:child_process';

const fix = process.argv.includes('--fix');
const checks: readonly (readonly [string, string, readonly string[]])[] = [
  [
    'Format and lint',
    'node_modules/.bin/biome',
    ['check', '--error-on-warnings', ...(fix ? ['--write'] : [])],
  ],
  ['Types', 'node_modules/.bin/tsc', ['--noEmit']],
  [
    'Import table',
    process.execPath,
    ['--test', '--test-reporter=dot', 'test/unit/import-table.test.ts'],
  ],
];

let failed = 0;
for (const [name, program, options] of checks) {
  process.stdout.write(`${name} ...\n`);
  if (spawnSync(program, options, { stdio: 'inherit' }).status !== 0) failed += 1;
}
process.stdout.write(failed === 0 ? 'All checks passed.\n' : `${failed} checks failed.\n`);
process.exit(failed === 0 ? 0 : 1);
