/** Generates requests for the fuzzer: most are HTTP that a client could send, some are bytes that no client would. */

import { anyValue, brokenJson, pathSegment, STRINGS } from './hostile-values.ts';
import type { Question } from './http.ts';
import type { Random } from './random.ts';
import type { Route } from './routes.ts';

const METHODS = [
  'GET',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'HEAD',
  'OPTIONS',
  'TRACE',
  'PROPFIND',
  'LOCK',
];
const FIELDS = [
  'public_key',
  'verify',
  'expires_in_seconds',
  'cpu_cores',
  'disk_size_gb',
  'gpu_type',
  'mode',
  'num_gpus',
  'template',
  'ephemeral_disk_gb',
  'instanceId',
  'name',
];
const CONTENT_TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'application/json; charset=latin1',
  'text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=--',
  'application/problem+json',
  ';;;',
  'application/json/x',
];

export interface FuzzSetting {
  readonly routes: readonly Route[];
  readonly token: string;
  /** Numbers and UUIDs that exist. */
  readonly realIds: readonly string[];
}

/** Requests that would end the only real instance go to others. */
const ENDING = /\/(?:delete|stop)$/;

interface Target {
  readonly method: string;
  readonly path: string;
}

function fillIn(random: Random, pattern: string, setting: FuzzSetting): string {
  return pattern.replaceAll(/\{[^}]+\}/g, () =>
    random.chance(0.3) && !ENDING.test(pattern)
      ? random.pick(setting.realIds)
      : pathSegment(random),
  );
}

function target(random: Random, setting: FuzzSetting): Target {
  if (random.chance(0.04)) {
    const depth = 1 + random.below(5);
    const path = `/${Array.from({ length: depth }, () => pathSegment(random)).join('/')}`;
    return { method: random.pick(METHODS), path };
  }
  const route = random.pick(setting.routes);
  const filled = fillIn(random, route.path, setting);
  const query = random.chance(0.1) ? `?${pathSegment(random)}=${pathSegment(random)}` : '';
  const tail = random.chance(0.03) ? random.pick(['/', '//', '/.', '%20', '#x', ';x']) : '';
  const method = random.chance(0.85) ? route.method : random.pick(METHODS);
  return { method, path: `${filled}${tail}${query}` };
}

/** Never a whole, good "create": at least one field has no type at all that it may have. */
function body(random: Random): string {
  if (random.chance(0.15)) return brokenJson(random);
  if (random.chance(0.1)) return JSON.stringify(anyValue(random)) ?? '';
  const names = FIELDS.filter(() => random.chance(0.4));
  const entries = names.map((name) => [name, anyValue(random)]);
  return JSON.stringify(Object.fromEntries(entries));
}

function authorization(random: Random, token: string): Record<string, string> {
  if (random.chance(0.85)) return { authorization: `Bearer ${token}` };
  if (random.chance(0.3)) return {};
  const odd = [
    token,
    `Basic ${token}`,
    'Bearer',
    `Bearer ${random.text(60)}`,
    `bearer  ${token}`,
    '',
  ];
  return { authorization: random.pick(odd) };
}

function oddHeaders(random: Random): Record<string, string> {
  const headers: Record<string, string> = {};
  if (random.chance(0.1)) headers['x-request-id'] = random.text(random.below(300), 'ab-._<>"; ');
  if (random.chance(0.1)) headers['if-none-match'] = random.pick(['*', '"', 'W/', '"a", b', ',,,']);
  if (random.chance(0.05)) headers.accept = random.pick(['text/html', 'nonsense', '*/*;q=9']);
  if (random.chance(0.03)) headers['accept-encoding'] = 'gzip, br;q=x, *;q=0';
  if (random.chance(0.03)) headers['content-encoding'] = 'gzip';
  if (random.chance(0.03)) headers['x-http-method-override'] = 'DELETE';
  if (random.chance(0.03)) headers.expect = random.pick(['100-continue', 'miracles']);
  if (random.chance(0.03)) headers.upgrade = 'websocket';
  if (random.chance(0.02)) headers.range = 'bytes=0-1';
  if (random.chance(0.02)) headers.cookie = random.text(3000);
  if (random.chance(0.02)) headers['idempotency-key'] = random.text(random.below(400));
  return headers;
}

/** A request that Node's own client agrees to send. */
export function anyQuestion(random: Random, setting: FuzzSetting): Question {
  const { method, path } = target(random, setting);
  const headers = { ...authorization(random, setting.token), ...oddHeaders(random) };
  if (random.chance(0.3)) return { method, path, headers };
  const type = random.chance(0.85) ? 'application/json' : random.pick(CONTENT_TYPES);
  return {
    method,
    path,
    headers: { ...headers, 'content-type': type },
    body: body(random),
  };
}

type Breakage = (random: Random, head: string) => string;

const BREAKAGES: readonly Breakage[] = [
  (random, head) => head.slice(0, 1 + random.below(head.length)),
  (random, head) => head.replace('HTTP/1.1', random.pick(['HTTP/1.0', 'HTTP/9.9', 'HTTP', ''])),
  (random, head) => head.replace(/^[A-Z]+/, random.text(1 + random.below(12), 'abzABZ-_ \t0')),
  (random, head) => head.replace('\r\n', random.pick(['\n', '\r', '\r\n ', '\0\r\n', '\r\n\t'])),
  (_random, head) => head.replaceAll('\r\n', '\n'),
  (random, head) => head.replace('\r\n', `\r\n${random.text(40, 'ab: \0\u007f\t"')}\r\n`),
  (random, head) => head.replace('\r\n', `\r\nContent-Length: ${random.pick(STRINGS)}\r\n`),
  (_random, head) => head.replace('\r\n', '\r\nContent-Length: 5\r\nContent-Length: 6\r\n'),
  (_random, head) => `${head.replace('\r\n', '\r\nTransfer-Encoding: chunked\r\n')}zz\r\n`,
  (_random, head) => `${head.replace('\r\n', '\r\nTransfer-Encoding: chunked, gzip\r\n')}0\r\n\r\n`,
  (_random, head) => head.replace('\r\n', '\r\nTransfer-Encoding: x\r\nContent-Length: 1\r\n'),
  (random, head) => head.replace('\r\n', `\r\nX: ${'y'.repeat(random.below(30_000))}\r\n`),
  (random, head) => head.replace('\r\n', `\r\n${'A: b\r\n'.repeat(random.below(3000))}`),
  (random, head) => head.replace(' /', ` ${random.pick(['http://[', '//', '*', '/\u00e9', '/ '])}`),
  (random) => random.text(1 + random.below(400), '\0\u0001\u0016\u0003GET /\r\n\u00ff: '),
  (_random, head) => head.replace(/Host: [^\r]*\r\n/, ''),
  (_random, head) => head.replace('Host:', 'Host: a\r\nHost:'),
];

/** Bytes of a request that is broken somewhere. */
export function brokenBytes(random: Random, setting: FuzzSetting): Buffer {
  const { method, path } = target(random, setting);
  const head =
    `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n` +
    `Authorization: Bearer ${setting.token}\r\nConnection: close\r\n\r\n`;
  return Buffer.from(random.pick(BREAKAGES)(random, head), 'latin1');
}
