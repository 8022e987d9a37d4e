/** What the fuzzer puts where the service expects something else. */

import type { Random } from './random.ts';

export const STRINGS: readonly string[] = [
  '',
  ' ',
  '0',
  '-1',
  'null',
  'undefined',
  'true',
  'NaN',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '../../../../etc/passwd',
  '..\\..\\windows',
  "' OR 1=1 --",
  '"; DROP TABLE instances; --',
  '%00',
  '%s%n%x',
  `$\{7*7}`,
  '$(id)',
  '`id`',
  '\u0000',
  'a\u0000b',
  '\r\nX-Injected: 1',
  '\ud800',
  '\u202e',
  '👩‍👩‍👧‍👦',
  'ﷺ'.repeat(50),
  'é'.normalize('NFD'),
  'x'.repeat(64),
  'x'.repeat(1000),
  '9'.repeat(400),
  '00000000-0000-0000-0000-000000000000',
  'ffffffff-ffff-ffff-ffff-ffffffffffff',
  'SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
  'ssh-ed25519 AAAA',
  'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== x',
  'ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ==',
  'command="id" ssh-ed25519 AAAA',
  '-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n',
];

const NUMBERS: readonly number[] = [
  0, -0, 1, -1, 59, 60, 0.5, 1e21, -1e21, 2147483647, 2147483648, 4294967296, 9007199254740992,
  1.7976931348623157e308, 5e-324,
];

const ATOMS: readonly unknown[] = [null, true, false, [], {}, [[]], [null], { length: 1 }];

/** Any JSON value; the deeper, the simpler. */
export function anyValue(random: Random, depth = 0): unknown {
  const kind = random.below(depth > 3 ? 3 : 6);
  if (kind === 0) return random.pick(STRINGS);
  if (kind === 1) return random.pick(NUMBERS);
  if (kind === 2) return random.pick(ATOMS);
  if (kind === 3) return random.text(random.below(200), 'abc{}[]":,\\\u0000\u00e9 \n');
  const size = random.below(4);
  const items = Array.from({ length: size }, () => anyValue(random, depth + 1));
  if (kind === 4) return items;
  return Object.fromEntries(items.map((item) => [random.pick(STRINGS), item]));
}

/** Text that is nearly JSON. */
export function brokenJson(random: Random): string {
  const whole = JSON.stringify({ a: anyValue(random), b: anyValue(random) });
  const at = random.below(whole.length);
  const cut = random.below(4);
  if (cut === 0) return whole.slice(0, at);
  if (cut === 1)
    return whole.slice(0, at) + random.pick(['"', '}', '\\', '\u0001', ',']) + whole.slice(at);
  if (cut === 2) return '['.repeat(1 + random.below(20_000));
  return whole + random.pick(['}', ' {}', '\0', 'x']);
}

/** A segment of a path, as it goes over the wire. */
export function pathSegment(random: Random): string {
  const kind = random.below(5);
  if (kind === 0) return encodeURIComponent(random.pick(STRINGS).toWellFormed());
  if (kind === 1) return String(random.pick(NUMBERS));
  if (kind === 2)
    return random.pick(['%', '%zz', '%ff', '%2f', '%00', '..', '.', '%2e%2e', '*', ';']);
  if (kind === 3) return random.text(random.below(100) + 1, "abc20!$&'()*+,;=:@-._~");
  return random.pick(['0', '1', '2', '00', '7', '999999']);
}
