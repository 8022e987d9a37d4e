/** Right after a start of the service: what it says of instances, their published ports say too. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { claimPorts } from '../support/ports.ts';
import { serve } from './served.ts';

const settling = Promise.withResolvers<void>();
const served = await serve(await claimPorts(4), undefined, undefined, settling.promise);
after(() => served.close());

test('callers wait until what runs is as it should be; nobody waits to hear that it lives', async () => {
  let answered = false;
  const headers = { authorization: `Bearer ${await served.newToken()}` };
  const waiting = fetch(`${served.url}/v1/instances/list`, { headers }).then((answer) => {
    answered = true;
    return answer.status;
  });
  for (let times = 0; times < 5; times += 1)
    assert.equal((await fetch(`${served.url}/healthz`)).status, 200);
  assert.equal(answered, false);
  settling.resolve();
  assert.equal(await waiting, 200);
});
