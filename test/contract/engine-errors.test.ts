/**
 * 502, 503 and 504 of the error table, with faults put in front of a real engine and asked for over HTTP: each has its
 * word, and "nothing half-done is left behind".
 */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { EngineError } from '../../src/engines/engine.ts';
import { serve } from '../http/served.ts';
import { smallest } from '../services/workshop.ts';
import { Api, checkAddedKey } from '../support/client.ts';
import { makeKeyPair } from '../support/keys.ts';
import { claimPorts } from '../support/ports.ts';

const keyFolder = mkdtempSync(join(tmpdir(), 'berth-keys-'));
const served = await serve(await claimPorts(24));
after(async () => {
  rmSync(keyFolder, { recursive: true });
  await served.close();
});
const { shop } = served;
const api = new Api(() => served.url, await served.newToken());
const { uuid } = await shop.instances.create(shop.actor, smallest);
await shop.settle();
const before = await api.keys(uuid);
const pair = await makeKeyPair(keyFolder);
const ADD_KEY = `/v1/instances/${uuid}/add_key`;

const rows: readonly (readonly [number, string, EngineError['kind']])[] = [
  [502, 'engine_error', 'failed'],
  [502, 'engine_error', 'no_space'],
  [503, 'unavailable', 'unavailable'],
  [504, 'engine_timeout', 'timeout'],
];
const bodies = { 'a supplied key': { public_key: pair.publicKey }, 'a generated key': {} };

for (const [status, word, kind] of rows) {
  for (const [name, body] of Object.entries(bodies)) {
    test(`${status} ${word}: the engine is ${kind} while ${name} is added`, async () => {
      shop.faults.inject('addKey', 1, { kind });
      const answer = await api.call('POST', ADD_KEY, { body });
      shop.faults.clear();
      assert.equal(answer.status, status, answer.text);
      assert.match(answer.text, new RegExp(`"error":"${word}"`));
      assert.deepEqual(await api.keys(uuid), before, 'nothing is left behind');
      const { sshPublicKeys } = await api.instance(uuid);
      assert.equal(sshPublicKeys.length, before.length);
    });
  }

  test(`${status} ${word}: the engine is ${kind} while keys are listed and removed`, async () => {
    const fingerprint = encodeURIComponent(before[0]?.fingerprint ?? '');
    for (const [method, path, call] of [
      ['GET', `/v1/instances/${uuid}/keys`, 'readKeys'],
      ['DELETE', `/v1/instances/${uuid}/keys/${fingerprint}`, 'removeKey'],
    ] as const) {
      shop.faults.inject(call, 1, { kind });
      const answer = await api.call(method, path);
      shop.faults.clear();
      assert.equal(answer.status, status, `${method}: ${answer.text}`);
      assert.match(answer.text, new RegExp(`"error":"${word}"`));
    }
    assert.deepEqual(await api.keys(uuid), before);
  });
}

test('a generated key whose writing was done and not reported in time is taken back', async () => {
  shop.faults.inject('addKey', 1, { kind: 'timeout', after: true });
  const answer = await api.call('POST', ADD_KEY, { body: bodies['a generated key'] });
  shop.faults.clear();
  assert.equal(answer.status, 504, answer.text);
  assert.deepEqual(await api.keys(uuid), before);
});

test('503 on /readyz while the engine does not answer, 200 after', async () => {
  shop.faults.inject('health', 1, { kind: 'unavailable' });
  assert.equal((await api.refused(503, 'GET', '/readyz')).error, 'unavailable');
  assert.equal((await api.call('GET', '/readyz')).status, 200);
});

test('the same request afterwards is a success', async () => {
  checkAddedKey(await api.call('POST', ADD_KEY, { body: bodies['a supplied key'] }));
});
