/**
 * Every row of the contract's error table, provoked. 502, 503 and 500 come of real trouble: an sshd that stands still,
 * a database that somebody else holds or broke, a service that is shutting down. 504, 403, 422 and 429 have files of
 * their own beside this one.
 */

import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { ask, checkAnswer, checkErrorBody } from '../support/http.ts';
import { makeKeyPair } from '../support/keys.ts';
import { sandboxProcesses } from '../support/processes.ts';
import { firstAnswer } from '../support/raw-socket.ts';
import { eventually, sleep } from '../support/waiting.ts';
import { OPERATIONS, pathOf, wantedInstance } from './operations.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service, skipLogins: skip } = house;
const main = await house.machine();
const json = { 'content-type': 'application/json' };
const CREATE = '/v1/instances/create';
const ADD_KEY = `/v1/instances/${main.id}/add_key`;

async function refusal(status: number, word: string, ...asked: Parameters<typeof ask>) {
  const answer = await ask(...asked);
  const body = JSON.parse(answer.text) as { code: number; error: string; message: string };
  assert.deepEqual([answer.status, body.code, body.error], [status, status, word], answer.text);
  return { answer, message: body.message };
}

const call = (method: string, path: string, body?: unknown) => ({
  method,
  path,
  headers: { authorization: `Bearer ${api.token}`, ...(body === undefined ? {} : json) },
  ...(body === undefined ? {} : { body: JSON.stringify(body) }),
});

const badRequests: readonly (readonly [string, string, unknown, RegExp])[] = [
  ['a wrong type', CREATE, { ...wantedInstance, cpu_cores: '1' }, /cpu_cores/],
  ['a missing field', CREATE, { ...wantedInstance, template: undefined }, /template/],
  ['a bad public key', ADD_KEY, { public_key: 'ssh-ed25519 nonsense' }, /./],
  ['an unsatisfiable size: cores', CREATE, { ...wantedInstance, cpu_cores: 100_000 }, /cpu_cores/],
  ['an unsatisfiable size: disk', CREATE, { ...wantedInstance, disk_size_gb: 1e9 }, /disk_size_gb/],
  ['an unsatisfiable number of GPUs', CREATE, { ...wantedInstance, num_gpus: 8 }, /num_gpus/],
  ['an unknown GPU type', CREATE, { ...wantedInstance, gpu_type: 'h9000' }, /gpu_type/],
];
for (const [name, path, body, message] of badRequests) {
  test(`400 invalid_request: ${name}`, async () => {
    const refused = await refusal(
      400,
      'invalid_request',
      service.baseUrl,
      call('POST', path, body),
    );
    assert.match(refused.message, message);
  });
}

test('400 invalid_request: malformed JSON', async () => {
  const question = { ...call('POST', ADD_KEY, {}), body: '{"public_key":' };
  await refusal(400, 'invalid_request', service.baseUrl, question);
});

test('401 unauthorized: no, malformed, unknown, expired or revoked token; WWW-Authenticate', async () => {
  const revoked = await api.createToken('revoked');
  await api.deleteToken('revoked');
  const expired = await api.createToken('expired');
  const database = new DatabaseSync(join(service.dataFolder, 'berth.db'), { timeout: 5000 });
  database.prepare('update tokens set expires_at = 1000 where name = ?').run('expired');
  database.close();
  const unknown = api.token.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a'));
  for (const token of [undefined, '%%%', unknown, revoked, expired]) {
    const headers: Record<string, string> =
      token === undefined ? {} : { authorization: `Bearer ${token}` };
    const question = { method: 'GET', path: '/v1/tokens', headers };
    const { answer } = await refusal(401, 'unauthorized', service.baseUrl, question);
    assert.equal(answer.headers['www-authenticate'], 'Bearer');
  }
});

test('404 not_found: no such resource; no such route', async () => {
  for (const path of ['/v1/instances/987654', '/v1/instances/no-id', '/v1/nothing', '/v3']) {
    await refusal(404, 'not_found', service.baseUrl, call('GET', path));
  }
});

for (const path of new Set(OPERATIONS.map((operation) => operation.path))) {
  const own = OPERATIONS.filter((one) => one.path === path).map((one) => one.method);
  test(`405 method_not_allowed on ${path}: Allow names ${own}`, async () => {
    const [operation] = OPERATIONS.filter((one) => one.path === path);
    assert.ok(operation !== undefined);
    const question = call('PUT', pathOf(operation, main.id));
    const { answer } = await refusal(405, 'method_not_allowed', service.baseUrl, question);
    const allowed = (answer.headers.allow ?? '').split(/, */);
    for (const method of own) assert.ok(allowed.includes(method), `${allowed}`);
  });
}

test('409 conflict: a name taken, an instance not RUNNING, a change under way', async () => {
  await api.createSnapshot(main.id, 'taken');
  const again = call('POST', '/v1/snapshots/create', { instanceId: main.id, name: 'taken' });
  await refusal(409, 'conflict', service.baseUrl, again);
  await api.snapshotReady('taken');
  const other = await house.machine();
  await api.stopInstance(other.id);
  await refusal(
    409,
    'conflict',
    service.baseUrl,
    call('POST', `/v1/instances/${other.id}/add_key`),
  );
  await api.reach(other.id, 'STOPPED', ['STOPPING']);
  const add = call('POST', `/v1/instances/${other.id}/add_key`);
  const refused = await refusal(409, 'conflict', service.baseUrl, add);
  assert.match(refused.message, /STOPPED/, 'it names the status');
});

test('413 payload_too_large over 64 KiB, and not at 64 KiB', async () => {
  for (const [size, status] of [
    [65_536, 200],
    [65_537, 413],
  ] as const) {
    const body = `{"x":"${'y'.repeat(size - 8)}"}`;
    assert.equal(Buffer.byteLength(body), size);
    const { method, path, headers } = call('POST', ADD_KEY, {});
    const answer = await ask(service.baseUrl, { method, path, headers, body });
    assert.equal(answer.status, status, answer.text);
    if (status === 413) assert.match(answer.text, /"payload_too_large"/);
  }
});

test('415 unsupported_media_type: a body that is not JSON', async () => {
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/yaml']) {
    const question = { ...call('POST', ADD_KEY, {}), body: 'a=b' };
    const headers = { ...question.headers, 'content-type': type };
    await refusal(415, 'unsupported_media_type', service.baseUrl, { ...question, headers });
  }
});

test('502 login_refused: the sshd of the instance stands still; nothing is left behind', {
  skip,
}, async () => {
  const machine = await house.machine();
  const before = await api.keys(machine.id);
  const { publicKey } = await makeKeyPair(house.keyFolder);
  const instances = join(service.dataFolder, 'sandbox', 'instances');
  const found = sandboxProcesses(service.dataFolder).filter(
    (one) => one.command.includes(instances) || one.mounts.includes(instances),
  );
  const frozen = found.map((one) => one.pid).filter((pid) => pid !== service.pid);
  for (const pid of frozen) process.kill(pid, 'SIGSTOP');
  const started = Date.now();
  try {
    const path = `/v1/instances/${machine.id}/add_key`;
    const question = call('POST', path, { public_key: publicKey, verify: true });
    await refusal(502, 'login_refused', service.baseUrl, question);
  } finally {
    for (const pid of frozen) process.kill(pid, 'SIGCONT');
  }
  assert.ok(Date.now() - started < 25_000, 'within 25 s');
  assert.deepEqual(await api.keys(machine.id), before);
});

test('503 unavailable: somebody else holds the database; the answer comes within 25 s', async () => {
  const database = new DatabaseSync(join(service.dataFolder, 'berth.db'), { timeout: 5000 });
  database.exec('begin immediate');
  try {
    const body = { name: 'never-written' };
    const question = call('POST', '/v1/token/create', body);
    await refusal(503, 'unavailable', service.baseUrl, question);
  } finally {
    database.exec('rollback');
    database.close();
  }
  assert.ok(!(await api.tokens()).some((token) => token.name === 'never-written'));
});

test('500 internal: a table is gone, and the answer says nothing of it', async () => {
  const database = new DatabaseSync(join(service.dataFolder, 'berth.db'), { timeout: 5000 });
  const rename = (from: string, to: string): void =>
    void database.exec(`alter table ${from} rename to ${to}`);
  const stranger = await house.tenant('whose-list-nobody-has-read');
  rename('snapshots', 'elsewhere');
  try {
    const question = {
      method: 'GET',
      path: '/v1/snapshots/list',
      headers: { authorization: `Bearer ${stranger.token}` },
    };
    const refused = await refusal(500, 'internal', service.baseUrl, question);
    assert.doesNotMatch(refused.answer.text, /snapshots|elsewhere|table|SQL/i);
  } finally {
    rename('elsewhere', 'snapshots');
    database.close();
  }
});

/** A connection whose request is begun and not ended, so that a service that is closing waits for it. */
function beginRequest(): Promise<{ socket: Socket; received: () => Buffer }> {
  const { hostname, port } = new URL(service.baseUrl);
  const chunks: Buffer[] = [];
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.once('error', reject);
    socket.write(`GET /v1/tokens HTTP/1.1\r\nHost: ${hostname}\r\n`, () =>
      resolve({ socket, received: () => Buffer.concat(chunks) }),
    );
  });
}

test('503 unavailable: a request that arrives while the service is shutting down', async () => {
  const { socket, received } = await beginRequest();
  // A connection that the service has not taken yet would be reset; they are taken in turn.
  await sleep(200);
  assert.equal((await fetch(`${service.baseUrl}/healthz`)).status, 200);
  const refused = async (): Promise<true | undefined> =>
    fetch(`${service.baseUrl}/healthz`).then(
      () => undefined,
      () => true,
    );
  process.kill(service.pid ?? 0, 'SIGTERM');
  await eventually('no new connections', 10_000, refused);
  socket.write(`Authorization: Bearer ${api.token}\r\n\r\n`);
  const answer = await eventually('an answer', 10_000, () => firstAnswer(received()));
  socket.destroy();
  assert.equal(answer.status, 503, answer.text);
  checkAnswer(answer);
  assert.equal(checkErrorBody(503, answer.text).error, 'unavailable');
  assert.ok(Number(answer.headers['retry-after']) > 0);
  assert.equal((await service.waitForExit()).code, 0);
});
