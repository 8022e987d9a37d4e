/** With an `Idempotency-Key` no private key is lost: not by a cut connection, and not by a service that is killed. */

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import type { AddedKey } from '../support/contract.ts';
import { loginTo, openHouse, WAY_UP } from '../support/house.ts';
import type { Answer } from '../support/http.ts';
import { keyFileLines, linesWith } from '../support/key-file.ts';
import { publicHalf, saveKey } from '../support/keys.ts';
import {
  filesBelow,
  filesWithBytes,
  findInFiles,
  privateKeysIn,
  seedOf,
  tracesOf,
} from '../support/secrets.ts';
import { loginProblem } from '../support/ssh.ts';
import { eventually, eventuallyPasses } from '../support/waiting.ts';

const house = await openHouse({ environment: { BERTH_LOG_LEVEL: 'trace' } });
after(() => house.dispose());
const { api, service, keyFolder, skipLogins: skip } = house;
const main = await house.machine();
const path = `/v1/instances/${main.uuid}/add_key`;
const SETTLE_MS = 20_000;

const keys: string[] = [];
const privateKeys: string[] = [];

/** Not a word that could stand in a log by chance. */
function newKey(): string {
  const key = `retry-of-a-client-${keys.length}-${process.pid}`;
  keys.push(key);
  return key;
}

/** As a client does after a lost connection: again, with the same key, while the first is still at work. */
async function ask(method: string, where: string, key: string, body?: unknown): Promise<Answer> {
  return eventually('an answer', SETTLE_MS, async () => {
    const answer = await api.call(method, where, { body, headers: { 'idempotency-key': key } });
    return answer.status === 409 && answer.headers['retry-after'] === '1' ? undefined : answer;
  });
}

function privateKeyOf(answer: Answer): string {
  assert.ok(answer.status < 300, answer.text);
  const { key } = JSON.parse(answer.text) as Pick<AddedKey, 'key'>;
  privateKeys.push(key);
  return key;
}

/** Sends the request and destroys the socket after this time, whatever has come by then. */
function cutAfter(delayMs: number, key: string): Promise<void> {
  const { hostname, port } = new URL(service.baseUrl);
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    socket.on('connect', () => setTimeout(() => socket.resetAndDestroy(), delayMs));
    socket.on('error', () => undefined);
    socket.once('close', () => resolve());
    socket.write(
      `POST ${path} HTTP/1.1\r\nHost: ${hostname}\r\nIdempotency-Key: ${key}\r\n` +
        `Authorization: Bearer ${api.token}\r\n\r\n`,
    );
  });
}

/** The key logs in, and stands in the file once. */
async function assertLogsIn(privateKey: string): Promise<void> {
  const keyFile = saveKey(keyFolder, privateKey);
  assert.equal(await loginProblem({ ...main.login, keyFile }), undefined);
  assert.equal((await linesWith(main.login, await publicHalf(keyFile))).length, 1);
}

test('a connection that is cut leaves the key for the retry, one line each', { skip }, async () => {
  const before = (await keyFileLines(main.login)).length;
  const delays = [0, 1, 2, 4, 8, 16, 32, 64];
  let replayed = 0;
  for (const delayMs of delays) {
    const key = newKey();
    await cutAfter(delayMs, key);
    const answer = await ask('POST', path, key);
    if (answer.headers['idempotency-replayed'] === 'true') replayed += 1;
    const again = await ask('POST', path, key);
    assert.equal(again.text, answer.text);
    assert.equal(again.headers['idempotency-replayed'], 'true');
    await assertLogsIn(privateKeyOf(answer));
  }
  console.log(`${delays.length} connections cut, ${replayed} answers had been kept for the retry`);
  assert.ok(replayed > 0, 'some were at work when they were cut');
  assert.equal((await keyFileLines(main.login)).length - before, delays.length);
  const { sshPublicKeys } = await api.instance(main.uuid);
  assert.equal(sshPublicKeys.length, before + delays.length, 'the API says the same');
});

for (const [point, kept] of [
  ['add_key:recorded:after', false],
  ['add_key:written:after', false],
  ['add_key:confirmed:after', true],
] as const) {
  test(`killed at ${point}: the retry gets ${kept ? 'the same' : 'a'} key`, { skip }, async () => {
    const before = (await keyFileLines(main.login)).length;
    const key = newKey();
    await service.stop();
    await service.start({ BERTH_TEST_CRASH_AT: point });
    const headers = { 'idempotency-key': key };
    await assert.rejects(api.call('POST', path, { headers }));
    assert.equal((await service.waitForExit()).signal, 'SIGKILL');
    await service.start();
    const answer = await api.call('POST', path, { headers });
    assert.equal(answer.headers['idempotency-replayed'], kept ? 'true' : undefined, answer.text);
    await assertLogsIn(privateKeyOf(answer));
    await eventuallyPasses(SETTLE_MS, async () => {
      assert.equal((await keyFileLines(main.login)).length - before, 1);
    });
    assert.equal((await api.call('POST', path, { headers })).text, answer.text);
  });
}

test('killed after an instance was accepted: the retry gets its key', { skip }, async () => {
  const before = (await api.instances()).size;
  const listed = await service.command(['serve'], { BERTH_TEST_LIST_CRASH_POINTS: '1' });
  const point = listed.split('\n').find((line) => line.startsWith('instance.create:')) ?? '';
  const headers = { 'idempotency-key': newKey() };
  const request = { body: SMALL_INSTANCE, headers };
  await service.stop();
  await service.start({ BERTH_TEST_CRASH_AT: point });
  await api.call('POST', '/v1/instances/create', request).catch(() => undefined);
  assert.equal((await service.waitForExit()).signal, 'SIGKILL');
  await service.start();
  const answer = await api.call('POST', '/v1/instances/create', request);
  assert.equal(answer.headers['idempotency-replayed'], 'true', answer.text);
  assert.equal((await api.instances()).size - before, 1);
  const { uuid } = JSON.parse(answer.text) as { uuid: string };
  const running = await api.reach(uuid, 'RUNNING', WAY_UP);
  const keyFile = saveKey(keyFolder, privateKeyOf(answer));
  assert.equal(await loginProblem(loginTo(running, keyFile)), undefined);
});

test('what is at rest gives away no private key, no token and no idempotency key', async () => {
  const answer = await ask('POST', '/v1/token/create', newKey(), { name: 'sealed' });
  const { token } = JSON.parse(answer.text) as { token: string };
  privateKeys.push(privateKeyOf(await ask('POST', path, newKey())));
  const look = (): void => {
    const files = [...filesBelow(service.dataFolder), service.logFile, service.outputFile];
    const tokens = [api.token, token].flatMap((one) => [one.slice(-32), `${one.slice(6, 40)}`]);
    assert.deepEqual(findInFiles(files, [...keys, ...tokens]), []);
    assert.deepEqual(findInFiles(files, privateKeys.flatMap(tracesOf)), []);
    assert.deepEqual(filesWithBytes(files, privateKeys.map(seedOf)), []);
    assert.deepEqual(privateKeysIn(files), []);
  };
  look();
  await service.restart();
  look();
  assert.ok(keys.length > 1 && privateKeys.length > 1);
});
