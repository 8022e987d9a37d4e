import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { CliError } from './exit-codes.ts';
import type { Terminal } from './terminal.ts';

/** Asks on stderr; true for `y` or `yes`. Nothing but a terminal can answer. */
export async function confirm(terminal: Terminal, question: string): Promise<boolean> {
  const lines = createInterface({ input: terminal.stdin, output: terminal.stderr });
  const abort = new AbortController();
  lines.once('close', () => abort.abort());
  try {
    return /^y(es)?$/i.test((await lines.question(question, { signal: abort.signal })).trim());
  } catch {
    return false;
  } finally {
    lines.close();
  }
}

/** Asks on stderr and reads a line from the terminal without showing it. */
export async function promptHidden(terminal: Terminal, question: string): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({
    input: terminal.stdin,
    output: nowhere,
    terminal: true,
    historySize: 0,
  });
  terminal.stderr.write(question);
  const abort = new AbortController();
  lines.once('close', () => abort.abort());
  try {
    return await lines.question('', { signal: abort.signal });
  } catch {
    throw new CliError('Nothing was entered.');
  } finally {
    lines.close();
    terminal.stderr.write('\n');
  }
}
