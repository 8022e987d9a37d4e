/**
 * The options of a line in `authorized_keys`, read as sshd reads them (sshauthopt_parse in auth-options.c of
 * OpenSSH; sshd(8), AUTHORIZED_KEYS FILE FORMAT). All texts are Latin-1, one character for each byte.
 */

/** Options without a value; most may be negated. */
const FLAG =
  /^(?:restrict|cert-authority|(?:no-)?(?:port-forwarding|agent-forwarding|x11-forwarding|pty|user-rc|touch-required|verify-required))$/i;
const SINGLE_VALUE_NAMES = ['command', 'from', 'principals'];
const VALUE_NAMES = new Set([
  ...SINGLE_VALUE_NAMES,
  ...['environment', 'expiry-time', 'permitlisten', 'permitopen', 'tunnel'],
]);
/** In double quotes, in which `\"` is no quote. */
const QUOTED = /^"(?:\\"|[^"\\]|\\(?!"))*"$/;

interface Option {
  /** In lower case: sshd ignores the case of names. */
  readonly name: string;
  /** Raw, quotes and all; empty for a flag. */
  readonly value: string;
  readonly text: string;
}

/** sshd passes over a whole line with an option that it does not know or cannot read. */
export function isUnderstood(options: string): boolean {
  const all = splitOptions(options);
  const isRead = ({ name, value, text }: Option): boolean =>
    VALUE_NAMES.has(name) ? QUOTED.test(value) : FLAG.test(text);
  const isRepeated = (wanted: string): boolean =>
    all.filter(({ name }) => name === wanted).length > 1;
  return all.every(isRead) && !options.endsWith(',') && !SINGLE_VALUE_NAMES.some(isRepeated);
}

/** With this option the line trusts certificates which that key signed, and not the key itself. */
export function isForSigner(options: string): boolean {
  return splitOptions(options).some(({ name }) => name === 'cert-authority');
}

/** Options that take something from a login; the others give, or matter for certificates alone. */
const LIMIT =
  /^(?:command|from|restrict|permitlisten|permitopen|touch-required|verify-required|no-(?!touch-required|verify-required).*)$/;

/** Does the line let its key do less than a line without options would? An end in time is not counted. */
export function limits(options: string): boolean {
  return splitOptions(options).some(({ name }) => LIMIT.test(name));
}

/** Until when sshd honours the line, in ms since the epoch: the earliest `expiry-time`; never, when one is bad. */
export function accessEnd(options: string): number {
  return splitOptions(options)
    .filter(({ name }) => name === 'expiry-time')
    .reduce((end, { value }) => Math.min(end, parseExpiry(value)), Number.POSITIVE_INFINITY);
}

/**
 * A quoted `YYYYMMDD[HHMM[SS]]`, in the server's local time, or in UTC with `Z` (or `UTC`) behind it;
 * parse_absolute_time in OpenSSH. The result is in ms since the epoch; -Infinity when sshd could not read it.
 */
function parseExpiry(value: string): number {
  const match = /^"(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)?)?(Z|UTC)?"$/i.exec(value);
  if (match === null) return Number.NEGATIVE_INFINITY;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = match
    .slice(1, 7)
    .map((digits) => Number(digits ?? 0));
  const isDate = year >= 1970 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
  if (!isDate || hour > 23 || minute > 59 || second > 61) return Number.NEGATIVE_INFINITY;
  const parts = [year, month - 1, day, hour, minute, second] as const;
  return match[7] === undefined ? new Date(...parts).getTime() : Date.UTC(...parts);
}

function splitOptions(options: string): Option[] {
  const found: Option[] = [];
  for (let start = 0; start < options.length; ) {
    const end = indexOutsideQuotes(options, start, ',');
    const text = options.slice(start, end);
    const [name = ''] = text.split('=', 1);
    found.push({ name: name.toLowerCase(), value: text.slice(name.length + 1), text });
    start = end + 1;
  }
  return found;
}

/** Where the first of these characters stands outside double quotes; the text's length when none does. */
export function indexOutsideQuotes(text: string, from: number, characters: string): number {
  let quoted = false;
  let index = from;
  for (; index < text.length; index += 1) {
    const character = text.charAt(index);
    if (character === '\\' && text[index + 1] === '"') index += 1;
    else if (character === '"') quoted = !quoted;
    else if (!quoted && characters.includes(character)) break;
  }
  return Math.min(index, text.length);
}
