import { explainFailure } from './exit-codes.ts';
import { printNote } from './output.ts';
import { buildProgram } from './program.ts';
import { processTerminal } from './terminal.ts';

// Whoever reads our output may stop early (`| head`): that is no failure of ours.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(process.exitCode ?? 0);
  throw error;
});

try {
  await buildProgram(processTerminal).parseAsync(process.argv);
} catch (error) {
  const failure = explainFailure(error, processTerminal.env);
  if (failure.text !== undefined) printNote(processTerminal, `berth: ${failure.text}`);
  // At once: a service that failed to start may have left timers running.
  process.exit(failure.exitCode);
}
