/** What the router and the HTTP parser refuse has the contract's error body like everything else. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { checkAnswer } from '../support/http.ts';
import { firstAnswer, sendRaw } from '../support/raw-socket.ts';
import { allRoutes, fill, type Route } from '../support/routes.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service } = house;
const url = service.baseUrl;
const routes = await allRoutes(url);
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
const fullPath = (path: string): string => fill(path, { id: '0', other: 'SHA256:x' });

const unknownPaths = [
  '/',
  '/v1',
  '/v1/',
  '/v2/snapshots/list',
  '/v1/snapshots',
  '/v1/snapshots/list/more',
  '/v1/Snapshots/list',
  '/v1/instances/0/add_key/x',
  '/v1/instances/0/unknown',
  '/.git/config',
  '/v1/../../etc/passwd',
  '//v1/tokens',
  '/favicon.ico',
];
for (const path of unknownPaths) {
  test(`GET ${path} is a 404`, async () => {
    const refused = await api.refused(404, 'GET', path);
    assert.equal(refused.error, 'not_found');
  });
}

/** Does a request for this path reach this route? GET /v1/instances/create is a GET of the instance "create". */
function reaches(route: Route, path: string): boolean {
  const pattern = route.path.replaceAll('.', '\\.').replaceAll(/\{[^}]+\}/g, '[^/]+');
  return new RegExp(`^${pattern}$`).test(path);
}

for (const pattern of new Set(routes.map((route) => route.path))) {
  const path = fullPath(pattern);
  const own = routes.filter((route) => route.path === pattern).map((route) => route.method);
  const reached = new Set(routes.filter((one) => reaches(one, path)).map((one) => one.method));
  const others = METHODS.filter((method) => !reached.has(method));
  test(`${pattern} under another method is a 405 that names the right ones`, async () => {
    for (const method of others) {
      const answer = await api.call(method, path);
      assert.equal(answer.status, 405, `${method}: ${answer.text}`);
      const named = (answer.headers.allow ?? '').split(/, */);
      for (const right of own) assert.ok(named.includes(right), `${method}: ${named}`);
      assert.ok(!named.includes(method), `${method} is not allowed: ${named}`);
    }
  });
}

test('a percent sign that encodes nothing is a 400 or 404', async () => {
  for (const path of ['/v1/instances/%', '/v1/instances/%zz', '/v1/instances/%ff%fe', '/%']) {
    const answer = await api.call('GET', path);
    assert.ok([400, 404].includes(answer.status), `${path}: ${answer.text}`);
  }
});

test('a huge path, query or header is a refusal, never a hang or a 5xx', async () => {
  for (const size of [1000, 8000, 15_000]) {
    const longId = await api.call('GET', `/v1/instances/${'7'.repeat(size)}`);
    assert.ok(longId.status >= 400 && longId.status < 500, longId.text);
    const query = await api.call('GET', `/v1/snapshots/list?x=${'y'.repeat(size)}`);
    assert.ok(query.status < 500, query.text);
  }
});

const HOST = 'Host: 127.0.0.1\r\n';
const refusedByTheParser: readonly (readonly [string, string | Buffer, readonly number[]])[] = [
  ['no HTTP at all', 'hello\r\n\r\n', [400]],
  ['an unknown method', `BREW /v1/tokens HTTP/1.1\r\n${HOST}\r\n`, [400, 405, 501]],
  ['a method in lower case', `get /v1/tokens HTTP/1.1\r\n${HOST}\r\n`, [400, 405, 501]],
  ['no Host', 'GET /healthz HTTP/1.1\r\n\r\n', [400]],
  ['a header without a colon', `GET /healthz HTTP/1.1\r\n${HOST}nonsense\r\n\r\n`, [400]],
  ['a NUL in a header', `GET /healthz HTTP/1.1\r\n${HOST}X: a\0b\r\n\r\n`, [400]],
  ['a header with a space', `GET /healthz HTTP/1.1\r\n${HOST}X y: a\r\n\r\n`, [400]],
  ['a bad length', `POST /v1/tokens HTTP/1.1\r\n${HOST}Content-Length: x\r\n\r\n`, [400]],
  ['a negative length', `POST /v1/tokens HTTP/1.1\r\n${HOST}Content-Length: -1\r\n\r\n`, [400]],
  [
    'two lengths',
    `POST /v1/tokens HTTP/1.1\r\n${HOST}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`,
    [400],
  ],
  [
    'length and chunks',
    `POST /v1/tokens HTTP/1.1\r\n${HOST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    [400],
  ],
  ['another version', `GET /healthz HTTP/3.7\r\n${HOST}\r\n`, [400, 505]],
  ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', [400, 404, 405, 505]],
  ['a TLS hello', Buffer.from('16030100c8010000c40303', 'hex'), [400]],
  ['headers of 40 kB', `GET /healthz HTTP/1.1\r\n${HOST}X: ${'y'.repeat(40_000)}\r\n\r\n`, [431]],
  ['a path of 40 kB', `GET /${'y'.repeat(40_000)} HTTP/1.1\r\n${HOST}\r\n`, [400, 404, 414, 431]],
  [
    'an expectation nobody meets',
    `POST /v1/tokens HTTP/1.1\r\n${HOST}Expect: miracles\r\nContent-Length: 0\r\n\r\n`,
    [401, 405, 417],
  ],
  ['TRACE', `TRACE /healthz HTTP/1.1\r\n${HOST}\r\n`, [400, 404, 405, 501]],
  ['PROPFIND', `PROPFIND /v1/tokens HTTP/1.1\r\n${HOST}\r\n`, [400, 404, 405, 501]],
  ['CONNECT', `CONNECT example.com:443 HTTP/1.1\r\n${HOST}\r\n`, [400, 404, 405, 501]],
  ['an asterisk', `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`, [200, 204, 400, 404, 405]],
  ['a foreign absolute address', `GET http://example.com/x HTTP/1.1\r\n${HOST}\r\n`, [400, 404]],
  ['a space in the path', `GET /v1/a b HTTP/1.1\r\n${HOST}\r\n`, [400]],
  ['bytes beyond ASCII in the path', `GET /v1/é HTTP/1.1\r\n${HOST}\r\n`, [400, 404]],
];
for (const [name, bytes, statuses] of refusedByTheParser) {
  test(`raw request with ${name}: the contract's error body`, async () => {
    const received = await sendRaw(url, bytes);
    const answer = firstAnswer(received);
    assert.ok(answer !== undefined, `no answer: ${JSON.stringify(received.toString())}`);
    assert.ok(statuses.includes(answer.status), `${answer.status} ${answer.text}`);
    checkAnswer(answer);
  });
}

test('an upgrade that nobody offers is answered as the request without it', async () => {
  const head = `GET /healthz HTTP/1.1\r\n${HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`;
  const answer = firstAnswer(await sendRaw(url, head));
  assert.equal(answer?.status, 200);
});

test('Expect: 100-continue is met', async () => {
  const body = '{"name":"patient"}';
  const head = `POST /v1/token/create HTTP/1.1\r\n${HOST}Authorization: Bearer ${api.token}\r\n`;
  const rest = `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n\r\n`;
  const received = await sendRaw(url, head + rest + body);
  assert.match(received.toString(), /HTTP\/1\.1 200 OK/);
});

test('a request cut in the middle of its body leaves nothing behind', async () => {
  const head = `POST /v1/token/create HTTP/1.1\r\n${HOST}Authorization: Bearer ${api.token}\r\n`;
  const rest = 'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"name":"half"';
  await sendRaw(url, head + rest, 200);
  assert.ok(!(await api.tokens()).some((token) => token.name === 'half'));
});
