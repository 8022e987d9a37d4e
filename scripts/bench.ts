/** `npm run bench`: sets up what the measurements need, then takes them. */
import { ensureSystemPackages } from './system-packages.ts';

if (!ensureSystemPackages((line) => process.stdout.write(`${line}\n`))) process.exit(1);
process.stdout.write('Measuring (about a minute) ...\n');
await import('../bench/bench.ts');
