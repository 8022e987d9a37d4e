/**
 * The options of a line in `authorized_keys`, read as sshd reads them (sshauthopt_parse in auth-options.c of
 * OpenSSH; sshd(8), AUTHORIZED_KEYS FILE FORMAT). All texts are Latin-1, one character for each byte.
 */

/** What the options of one line come to. Read once for each line: the file is its guest's, and may be all options. */
export interface LineRules {
  /** sshd passes over a whole line with an option that it does not know or cannot read. */
  readonly understood: boolean;
  /** With `cert-authority` the line trusts certificates which that key signed, and not the key itself. */
  readonly forSigner: boolean;
  /** The line lets its key do less than a line without options would. An end in time is not counted. */
  readonly limited: boolean;
  /** Until when sshd honours the line, in ms since the epoch: the earliest `expiry-time`; -Infinity, when one is bad. */
  readonly endMs: number;
}

interface OptionKind {
  readonly form: 'flag' | 'value';
  /** It takes something from a login; the others give, or matter for certificates alone. */
  readonly limits: boolean;
  /** sshd takes no second one. */
  readonly single: boolean;
}

const kind = (form: OptionKind['form'], words: string, single = false): [string, OptionKind][] =>
  words.split(' ').map((word) => {
    const name = word.replace('!', '');
    return [name, { form, limits: word.endsWith('!'), single }];
  });

/** A name with `!` limits. sshd ignores the case of names. */
const OPTION_KINDS: ReadonlyMap<string, OptionKind> = new Map([
  ...kind('flag', 'restrict! cert-authority'),
  ...kind('flag', 'port-forwarding agent-forwarding x11-forwarding pty user-rc'),
  ...kind(
    'flag',
    'no-port-forwarding! no-agent-forwarding! no-x11-forwarding! no-pty! no-user-rc!',
  ),
  ...kind('flag', 'touch-required! verify-required! no-touch-required no-verify-required'),
  ...kind('value', 'command! from! principals', true),
  ...kind('value', 'environment expiry-time permitlisten! permitopen! tunnel'),
]);
const NAME_LENGTHS = new Set([...OPTION_KINDS.keys()].map((name) => name.length));
const LONGEST_NAME_LENGTH = Math.max(...NAME_LENGTHS);

const [COMMA, EQUALS, QUOTE, BACKSLASH] = [0x2c, 0x3d, 0x22, 0x5c];

/** One pass, in which only a word as long as a known name is ever cut out. */
export function readOptions(options: string): LineRules {
  const rules = {
    understood: !options.endsWith(','),
    forSigner: false,
    limited: false,
    endMs: Number.POSITIVE_INFINITY,
  };
  const singles = new Set<string>();
  for (let start = 0; start < options.length; ) {
    const end = indexOutsideQuotes(options, start, COMMA);
    const nameEnd = endOfName(options, start, end);
    const name = NAME_LENGTHS.has(nameEnd - start)
      ? options.slice(start, nameEnd).toLowerCase()
      : '';
    const found = OPTION_KINDS.get(name);
    const isRead =
      found?.form === 'value' ? isQuoted(options, nameEnd + 1, end) : found && nameEnd === end;
    if (!isRead || singles.has(name)) rules.understood = false;
    if (found?.single) singles.add(name);
    if (found?.limits) rules.limited = true;
    if (name === 'cert-authority') rules.forSigner = true;
    if (name === 'expiry-time')
      rules.endMs = Math.min(rules.endMs, parseExpiry(options.slice(nameEnd + 1, end)));
    start = end + 1;
  }
  return rules;
}

/** Where the `=` of an option stands, or its end; looks no further than a known name could reach. */
function endOfName(options: string, start: number, end: number): number {
  const last = Math.min(end, start + LONGEST_NAME_LENGTH + 1);
  let index = start;
  while (index < last && options.charCodeAt(index) !== EQUALS) index += 1;
  return index;
}

/** In double quotes, in which `\"` is no quote. */
function isQuoted(text: string, start: number, end: number): boolean {
  if (start >= end || text.charCodeAt(start) !== QUOTE) return false;
  for (let index = start + 1; index < end; index += 1) {
    const code = text.charCodeAt(index);
    if (code === BACKSLASH && text.charCodeAt(index + 1) === QUOTE) index += 1;
    else if (code === QUOTE) return index === end - 1;
  }
  return false;
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

/** Where one of these characters first stands outside double quotes; the text's length when none does. */
export function indexOutsideQuotes(
  text: string,
  from: number,
  code: number,
  orCode: number = code,
): number {
  let quoted = false;
  let index = from;
  for (; index < text.length; index += 1) {
    const found = text.charCodeAt(index);
    if (found === BACKSLASH && text.charCodeAt(index + 1) === QUOTE) index += 1;
    else if (found === QUOTE) quoted = !quoted;
    else if (!quoted && (found === code || found === orCode)) break;
  }
  return Math.min(index, text.length);
}
