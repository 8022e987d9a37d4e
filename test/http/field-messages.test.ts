/** A 400 says what a field should be in words that need no knowledge of schemas. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { claimPorts } from '../support/ports.ts';
import { serve } from './served.ts';

const served = await serve(await claimPorts(4));
after(() => served.close());
const token = await served.newToken();
const small = {
  cpu_cores: 1,
  disk_size_gb: 10,
  ephemeral_disk_gb: 0,
  gpu_type: 'cpu',
  num_gpus: 1,
  mode: 'prototyping',
  template: 'base',
};

async function refusal(method: string, path: string, body: object): Promise<string> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const answer = await fetch(served.url + path, { method, headers, body: JSON.stringify(body) });
  assert.equal(answer.status, 400);
  const { message } = (await answer.json()) as { message: string };
  return message;
}

for (const [change, message] of [
  [{ cpu_cores: 'x' }, 'The field "cpu_cores" must be a whole number.'],
  [{ cpu_cores: 1.5 }, 'The field "cpu_cores" must be a whole number.'],
  [{ cpu_cores: 0 }, 'The field "cpu_cores" must be at least 1.'],
  [{ ephemeral_disk_gb: -1 }, 'The field "ephemeral_disk_gb" must be at least 0.'],
  [{ gpu_type: 7 }, 'The field "gpu_type" must be text.'],
  [{ gpu_type: '' }, 'The field "gpu_type" must be text of at least 1 character.'],
  [{ gpu_type: 'x'.repeat(65) }, 'The field "gpu_type" must be text of at most 64 characters.'],
  [{ mode: 'fast' }, 'The field "mode" must be one of: prototyping, production.'],
  [{ mode: undefined }, 'The field "mode" is missing.'],
] as const) {
  test(`creating with ${JSON.stringify(change)}: ${message}`, async () => {
    const body = { ...small, ...change };
    assert.equal(await refusal('POST', '/v1/instances/create', body), message);
  });
}

test('an item of a list is named by its place, and so is what should be a list', async () => {
  const path = '/v1/instances/0/ports';
  for (const [ports, message] of [
    [['x'], 'The field "add_ports.0" must be a whole number.'],
    ['x', 'The field "add_ports" must be a list.'],
  ] as const)
    assert.equal(await refusal('PATCH', path, { add_ports: ports }), message);
});
