import type { ClientFlags } from './options.ts';
import { printJson, printLine, printNote } from './output.ts';
import type { Terminal } from './terminal.ts';

/** An answer that may hold a private key, and the file that holds it instead, if one does. */
export interface KeyAnswer<T extends { readonly key: string }> {
  readonly answer: T;
  readonly keyFile?: string;
}

export interface KeyAnswerFlags extends ClientFlags {
  readonly print?: boolean;
}

/**
 * Prints an answer; of a private key only where its file is, unless the user asked for the key itself:
 * then it is all that stdout gets, and the first line goes to stderr.
 */
export function printKeyAnswer<T extends { readonly key: string }>(
  terminal: Terminal,
  flags: KeyAnswerFlags,
  { answer, keyFile }: KeyAnswer<T>,
  lines: readonly [string, ...string[]],
): void {
  const { key, ...others } = answer;
  if (flags.json) {
    printJson(terminal, keyFile === undefined ? answer : { ...others, key_file: keyFile });
  } else if (flags.print) {
    printNote(terminal, lines[0]);
    terminal.stdout.write(key);
  } else {
    for (const line of lines) printLine(terminal, line);
  }
}
