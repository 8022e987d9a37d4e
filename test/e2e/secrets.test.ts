/** After much use, no private key and no token stands anywhere: data folder, logs, process table. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Api, SMALL_INSTANCE } from '../support/client.ts';
import { openHouse, WAY_UP } from '../support/house.ts';
import { ask } from '../support/http.ts';
import { makeKeyPair } from '../support/keys.ts';
import { runWell } from '../support/run.ts';
import {
  filesBelow,
  filesWithBytes,
  findInCommands,
  findInFiles,
  privateKeysIn,
  seedOf,
  tracesOf,
} from '../support/secrets.ts';

const house = await openHouse({ environment: { BERTH_LOG_LEVEL: 'trace' } });
after(() => house.dispose());
const { api, service, keyFolder } = house;
const main = await house.machine();

const privateKeys: string[] = [];
const tokens: string[] = [api.token];

/** Uses everything that makes or sees a secret, also in ways that fail. */
async function useSecrets(): Promise<void> {
  for (let count = 0; count < 10; count += 1) {
    privateKeys.push((await api.addKey(main.id)).key);
    privateKeys.push((await api.addKey(main.id, { expires_in_seconds: 600 })).key);
    tokens.push(await api.createToken(`token-${count}`));
  }
  const created = await api.createInstance(SMALL_INSTANCE);
  privateKeys.push(created.key);
  await api.reach(created.uuid, 'RUNNING', WAY_UP);
  await api.createSnapshot(main.id, 'secrets');
  await api.snapshotReady('secrets');
  await api.deleteToken('token-3');
  for (const token of tokens) await new Api(() => service.baseUrl, token).call('GET', '/v1/tokens');
}

async function leakByMistake(): Promise<void> {
  const mine = await runWell('cat', [(await makeKeyPair(keyFolder)).keyFile]);
  privateKeys.push(mine);
  const body = { public_key: mine };
  await api.refused(400, 'POST', `/v1/instances/${main.id}/add_key`, { body });
  await api.refused(400, 'POST', '/v1/instances/create', { body: { ...SMALL_INSTANCE, ...body } });
  const rawBody = `{"public_key": ${JSON.stringify(mine)},,`;
  const headers = { 'content-type': 'application/json' };
  await api.refused(400, 'POST', `/v1/instances/${main.id}/add_key`, { rawBody, headers });
  const authorization = `Bearer ${api.token}x`;
  const wrong = { method: 'GET', path: '/v1/tokens', headers: { authorization } };
  assert.equal((await ask(service.baseUrl, wrong)).status, 401);
  const inQuery = `/v1/tokens?token=${api.token}`;
  assert.equal((await api.call('GET', inQuery)).status, 200);
}

test('secrets are made and used', async () => {
  await useSecrets();
  await leakByMistake();
  assert.equal(privateKeys.length, 22);
  for (const key of privateKeys) assert.equal(seedOf(key).length, 32);
  assert.equal(tracesOf(privateKeys[0] ?? '').length, 4, 'the traces are found at all');
});

test('no private key is in the data folder, while it runs and after it stopped', async () => {
  const traces = privateKeys.flatMap(tracesOf);
  const seeds = privateKeys.map(seedOf);
  const look = (): void => {
    const files = filesBelow(service.dataFolder);
    assert.ok(files.length > 3, 'there is something to look at');
    assert.deepEqual(findInFiles(files, traces), []);
    assert.deepEqual(filesWithBytes(files, seeds), []);
    assert.deepEqual(privateKeysIn(files), []);
  };
  look();
  await service.restart();
  look();
});

test('no token is in the data folder', () => {
  const secrets = tokens.map((token) => token.slice(-32));
  assert.deepEqual(findInFiles(filesBelow(service.dataFolder), secrets), []);
});

test('neither is in the logs', () => {
  const logs = [service.logFile, service.outputFile];
  const secrets = [...privateKeys.flatMap(tracesOf), ...tokens.map((token) => token.slice(-32))];
  assert.deepEqual(findInFiles(logs, secrets), []);
  assert.deepEqual(privateKeysIn(logs), []);
});

test('neither is in the command line of a process', () => {
  const secrets = [...privateKeys.flatMap(tracesOf), ...tokens.map((token) => token.slice(-32))];
  assert.deepEqual(findInCommands(secrets), []);
});

test('the data folder keeps strangers out of the database', async () => {
  const files = filesBelow(service.dataFolder).filter((path) => /\.db|sqlite/.test(path));
  assert.ok(files.length > 0);
  for (const path of files) {
    const mode = Number.parseInt((await runWell('stat', ['-c', '%a', path])).trim(), 8);
    assert.equal(mode & 0o077, 0, `${path} is ${mode.toString(8)}`);
  }
});
