import { printable } from './output.ts';
import type { Terminal } from './terminal.ts';

const intervalMs = 1000;
const clearLine = '\r\u001b[K';

/**
 * Shows on stderr what is being waited for, once that takes longer than a second: one line that
 * counts the seconds on a terminal, else a plain line whenever the text changes.
 */
export async function withProgress<T>(
  terminal: Terminal,
  text: string,
  work: (update: (text: string) => void) => Promise<T>,
): Promise<T> {
  const { stderr } = terminal;
  const startedAt = terminal.now();
  let current = text;
  let shown = '';
  const draw = () => {
    const seconds = Math.round((terminal.now() - startedAt) / 1000);
    if (stderr.isTTY) stderr.write(`${clearLine}${printable(current)} (${seconds} s)`);
    else if (shown !== current) stderr.write(`${printable(current)}\n`);
    shown = current;
  };
  const timer = setInterval(draw, intervalMs);
  try {
    return await work((next) => {
      current = next;
    });
  } finally {
    clearInterval(timer);
    if (stderr.isTTY && shown !== '') stderr.write(clearLine);
  }
}
