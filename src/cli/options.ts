import { type Command, InvalidArgumentError, Option } from 'commander';
import { allScopes, isScope } from '../domain/scopes.ts';

/** Flags of every command that talks to the service. */
export interface ClientFlags {
  readonly url?: string;
  readonly json?: boolean;
}

export function withClientFlags(command: Command): Command {
  return command
    .option('--url <url>', 'where the service is (default: BERTH_URL, else as logged in)')
    .option('--json', 'print the answer as JSON');
}

/** An argument parser for whole numbers; the bounds are included. */
export function integerBetween(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,12}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

const minuteSeconds = 60;
const daySeconds = 86_400;
const secondsPerUnit: Readonly<Record<string, number>> = {
  s: 1,
  m: minuteSeconds,
  h: 3600,
  d: daySeconds,
};
const longestKeyDays = 365;
const longestTokenDays = 36_500;

/** `90`, `90s`, `15m`, `2h` or `30d`, in seconds; what the service accepts as a key's life. */
export function parseLifetimeSeconds(text: string): number {
  const seconds = lifetimeSeconds(/^[0-9]+$/.test(text) ? `${text}s` : text, longestKeyDays);
  if (seconds !== undefined) return seconds;
  throw new InvalidArgumentError(
    'It must be from 1 minute to 365 days, such as 2h, 30d or a number of seconds.',
  );
}

/** The same for a token, but never without a unit: `90` could be meant as days. */
export function parseTokenLifetimeSeconds(text: string): number {
  const seconds = lifetimeSeconds(text, longestTokenDays);
  if (seconds !== undefined) return seconds;
  throw new InvalidArgumentError(
    'It must be from 1 minute to 36500 days, with a unit: 90s, 15m, 2h or 30d.',
  );
}

function lifetimeSeconds(text: string, longestDays: number): number | undefined {
  const match = /^([0-9]{1,9})([smhd])$/.exec(text);
  const seconds = Number(match?.[1] ?? Number.NaN) * (secondsPerUnit[match?.[2] ?? ''] ?? 1);
  return seconds >= minuteSeconds && seconds <= longestDays * daySeconds ? seconds : undefined;
}

/** Scopes, separated by commas. */
export function parseScopeList(text: string): string[] {
  const scopes = text.split(',').map((scope) => scope.trim());
  const unknown = scopes.find((scope) => !isScope(scope));
  if (unknown === undefined) return scopes;
  throw new InvalidArgumentError(
    `"${unknown}" is no scope. There are: ${allScopes.join(', ')}; separate them with commas.`,
  );
}

export const publicKeyOption = () =>
  new Option(
    '--public-key <file>',
    'a .pub file to use, or a name of the address book; - reads standard input',
  ).conflicts(['output', 'print']);

export const printOption = () =>
  new Option('--print', 'print the made private key instead of saving it').conflicts('output');
