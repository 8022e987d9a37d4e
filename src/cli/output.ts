import type { Terminal } from './terminal.ts';

export function printLine(terminal: Terminal, text: string): void {
  terminal.stdout.write(`${printable(text)}\n`);
}

export function printJson(terminal: Terminal, value: unknown): void {
  terminal.stdout.write(`${JSON.stringify(value, undefined, 2)}\n`);
}

/** For people, beside an output that a program may read. */
export function printNote(terminal: Terminal, text: string): void {
  terminal.stderr.write(`${printable(text)}\n`);
}

export function printTable(
  terminal: Terminal,
  headings: readonly string[],
  rows: readonly (readonly string[])[],
): void {
  for (const line of alignColumns([headings, ...rows])) printLine(terminal, line);
}

/** Two spaces between columns, no trailing white space; an empty cell shows as `-`. */
export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const cells = rows.map((row) => row.map((cell) => printable(cell) || '-'));
  const widths = (cells[0] ?? []).map((_heading, column) =>
    Math.max(...cells.map((row) => row[column]?.length ?? 0)),
  );
  return cells.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

/**
 * Without control characters except line feeds: comments of keys come from inside instances, and must
 * not steer the terminal of whoever lists them.
 */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '?');
}

/** Local time, to the minute. Takes RFC 3339, or seconds since the Unix epoch. */
export function readableTime(time: string | number | undefined): string {
  if (time === undefined) return '';
  const date = new Date(typeof time === 'number' ? time * 1000 : time);
  if (Number.isNaN(date.getTime())) return String(time);
  const pad = (value: number) => String(value).padStart(2, '0');
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/** A path as it can be pasted into a shell (POSIX, Shell Command Language, 2.2.2). */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
