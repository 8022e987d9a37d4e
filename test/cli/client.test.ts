import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, type Client, createClient, UnreachableError } from '../../src/api/client.ts';

const baseUrl = 'http://127.0.0.1:9';
const token = 'berth_secret';

/** A network that loses every connection with this code, and counts them. */
function losing(code: string): { client: Client; attempts: () => number } {
  let count = 0;
  const fetch = async () => {
    count += 1;
    throw new TypeError(`fetch failed with ${token}`, {
      cause: Object.assign(new Error(token), { code }),
    });
  };
  return { client: createClient({ baseUrl, token, fetch, pause }), attempts: () => count };
}

const pause = async (): Promise<void> => {};

/** A network that answers the same to everything, and keeps what was asked. */
function answering(status: number, body: string) {
  const asked: { url: string; init: RequestInit | undefined }[] = [];
  const fetch: typeof globalThis.fetch = async (url, init) => {
    asked.push({ url: String(url), init });
    return new Response(status === 204 ? null : body, { status });
  };
  return { client: createClient({ baseUrl: `${baseUrl}/`, token, fetch }), asked };
}

const retriedRequests: readonly [string, number, (client: Client) => Promise<unknown>][] = [
  ['a read', 3, (client) => client.listSnapshots()],
  ['start', 3, (client) => client.startInstance('0')],
  ['stop', 3, (client) => client.stopInstance('0')],
  ['add_key with a public key', 3, (client) => client.addKey('0', { public_key: 'ssh-ed25519 A' })],
  ['add_key that generates', 3, (client) => client.addKey('0')],
  ['delete', 3, (client) => client.deleteInstance('0')],
  ['remove a key', 1, (client) => client.removeKey('0', 'SHA256:x')],
  ['make a snapshot', 3, (client) => client.createSnapshot({ instanceId: '0', name: 'n' })],
  ['make a token', 3, (client) => client.createToken({ name: 'n' })],
];

for (const [name, attempts, request] of retriedRequests) {
  test(`lost connection: ${name} is tried ${attempts === 1 ? 'once' : `${attempts} times`}`, async () => {
    const network = losing('ECONNRESET');
    await assert.rejects(request(network.client), UnreachableError);
    assert.equal(network.attempts(), attempts);
  });
}

test('a refused connection is reported at once, with the URL and without the token', async () => {
  const network = losing('ECONNREFUSED');
  await assert.rejects(network.client.listInstances(), (error) => {
    assert.ok(error instanceof UnreachableError);
    assert.equal(error.message, `No answer from ${baseUrl}: connection refused.`);
    return true;
  });
  assert.equal(network.attempts(), 1);
});

/** A network that gives these answers in turn, the last one for ever, and keeps what was asked. */
function answeringInTurn(...answers: readonly (Response | Error)[]) {
  const asked: (RequestInit | undefined)[] = [];
  const pauses: number[] = [];
  const fetch: typeof globalThis.fetch = async (_url, init) => {
    const answer = answers[Math.min(asked.push(init), answers.length) - 1];
    if (answer instanceof Response) return answer.clone();
    throw answer;
  };
  const noted = async (pauseMs: number): Promise<void> => void pauses.push(pauseMs);
  const client = createClient({ baseUrl, token, fetch, pause: noted });
  return { client, asked, pauses, keys: () => new Set(asked.map(keyOf)) };
}

const keyOf = (init: RequestInit | undefined): string | null =>
  new Headers(init?.headers).get('idempotency-key');

const errorAnswer = (status: number, error: string, headers: Record<string, string> = {}) =>
  new Response(JSON.stringify({ code: status, error, message: 'No.' }), { status, headers });
const lost = new TypeError('fetch failed', { cause: { code: 'UND_ERR_SOCKET' } });
const refused = new TypeError('fetch failed', { cause: { code: 'ECONNREFUSED' } });
const added = Response.json({ success: true, uuid: 'u', key: 'k', message: 'm' });

test('every POST has a key of its own, and every attempt of it the same', async () => {
  const network = answeringInTurn(lost, errorAnswer(503, 'unavailable'), added);
  assert.equal((await network.client.addKey('0')).key, 'k');
  assert.equal(network.asked.length, 3);
  const [key] = network.keys();
  assert.deepEqual([network.keys().size, /^[0-9a-f]{32}$/.test(key ?? '')], [1, true]);
  await network.client.addKey('0');
  assert.equal(network.keys().size, 2, 'another request has another key');
  await network.client.listKeys('0');
  assert.equal(keyOf(network.asked.at(-1)), null, 'a read has none');
});

for (const [status, error, attempts] of [
  [500, 'internal', 3],
  [502, 'engine_error', 3],
  [502, 'login_refused', 1],
  [504, 'engine_timeout', 3],
  [409, 'conflict', 1],
  [422, 'idempotency_mismatch', 1],
  [429, 'rate_limited', 1],
] as const) {
  test(`an answer of ${status} ${error} to a POST is tried ${attempts} times`, async () => {
    const network = answeringInTurn(errorAnswer(status, error));
    await assert.rejects(network.client.addKey('0'), { status, error });
    assert.equal(network.asked.length, attempts);
  });
}

test('a read that failed is reported at once', async () => {
  const network = answeringInTurn(errorAnswer(503, 'unavailable', { 'retry-after': '5' }));
  await assert.rejects(network.client.readiness(), { status: 503 });
  assert.equal(network.asked.length, 1);
});

test('while the first attempt is still at work, the client waits for its answer', async () => {
  const busy = errorAnswer(409, 'conflict', { 'retry-after': '1' });
  const network = answeringInTurn(lost, busy, busy, busy, busy, busy, added);
  assert.equal((await network.client.addKey('0')).key, 'k');
  assert.deepEqual(network.pauses, [250, 1000, 1000, 1000, 1000, 1000]);
  const forEver = answeringInTurn(busy);
  await assert.rejects(forEver.client.addKey('0'), { status: 409 });
  assert.equal(forEver.asked.length, 31);
});

test('a service that restarts after the connection was lost is waited for', async () => {
  const network = answeringInTurn(lost, refused, added);
  assert.equal((await network.client.addKey('0')).key, 'k');
});

test('an error body becomes an ApiError', async () => {
  const { client } = answering(404, '{"code":404,"error":"not_found","message":"No."}');
  await assert.rejects(client.getInstance('7'), new ApiError(404, 'not_found', 'No.'));
});

for (const [status, body] of [
  [200, '<html>'],
  [502, '<html>'],
  [302, ''],
  [404, '{"detail":"x"}'],
] as const) {
  test(`status ${status} with ${body || 'nothing'} is said not to be Berth`, async () => {
    const { client } = answering(status, body);
    await assert.rejects(client.listSnapshots(), { error: 'unexpected_answer', status });
  });
}

test('values are one segment of the path each', async () => {
  const { client, asked } = answering(204, '');
  assert.equal(await client.removeKey('0', 'SHA256:a/b+c'), undefined);
  assert.equal(asked[0]?.url, `${baseUrl}/v1/instances/0/keys/SHA256%3Aa%2Fb%2Bc`);
  for (const id of ['', '.', '..'])
    await assert.rejects(client.deleteSnapshot(id), { status: 404 });
  assert.equal(asked.length, 1);
});

test('the request carries the token, and JSON only when there is a body', async () => {
  const { client, asked } = answering(200, '{}');
  await client.addKey('0');
  await client.stopInstance('0');
  const [first, second] = asked.map(({ init }) => init);
  const headersOf = (init: RequestInit | undefined) => {
    const { 'idempotency-key': _key, ...others } = { ...(init?.headers as object) } as Record<
      string,
      string
    >;
    return others;
  };
  assert.deepEqual(headersOf(first), {
    authorization: `Bearer ${token}`,
    'content-type': 'application/json',
  });
  assert.equal(first?.body, '{}');
  assert.deepEqual(headersOf(second), { authorization: `Bearer ${token}` });
});

test('a URL or token that cannot be used is refused without repeating it', () => {
  const secrets = [
    { baseUrl: 'http://user:hunter2@host', token },
    { baseUrl: 'ftp://hunter2', token },
    { baseUrl: 'hunter2', token },
    { baseUrl, token: 'hunter2\n' },
    { baseUrl, token: '' },
  ];
  for (const options of secrets) {
    assert.throws(
      () => createClient(options),
      (error) => error instanceof TypeError && !error.message.includes('hunter2'),
    );
  }
});

test('a service that is silent is given up on', async () => {
  const fetch: typeof globalThis.fetch = (_url, init) =>
    new Promise((_resolve, reject) => {
      init?.signal?.addEventListener('abort', () => reject(init.signal?.reason));
      // The client's own timer keeps no process alive.
      setTimeout(() => undefined, 1000);
    });
  const client = createClient({ baseUrl, token, fetch, timeoutMs: 20 });
  await assert.rejects(client.listSnapshots(), { reason: 'nothing came within 0.02 s' });
});
