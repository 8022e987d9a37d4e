/** What somebody does to instances, snapshots and ports behind the service's back shows as what it is, or is set right. */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import { type House, openHouse } from '../support/house.ts';
import { engineUnderTest, skipIncus } from '../support/incus.ts';
import { loginProblem } from '../support/ssh.ts';
import { eventually, eventuallyPasses } from '../support/waiting.ts';
import { settled } from './aftermath.ts';
import { guestPid, holderPath, instancePath, placeOf } from './incus-objects.ts';

const NOTICED_MS = 60_000;

const skip = skipIncus || (engineUnderTest !== 'incus' && 'it is about Incus');

describe('behind the back of the service', { skip, concurrency: 1 }, () => {
  let house: House;

  before(async () => {
    house = await openHouse();
  });
  after(() => house.dispose());

  const change = (
    method: 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: unknown,
  ): Promise<unknown> => {
    const { client, project } = placeOf(house);
    return client.change(method, path, body, { project, timeoutMs: 60_000 });
  };
  const stop = (uuid: string) =>
    change('PUT', `${instancePath(uuid)}/state`, { action: 'stop', force: true, timeout: 30 });

  test('an instance that was stopped is started again', async () => {
    const { uuid, login } = await house.machine();
    const pid = await guestPid(house, uuid);
    await stop(uuid);
    await eventually('another start', NOTICED_MS, async () => {
      const now = await guestPid(house, uuid);
      return now > 0 && now !== pid ? true : undefined;
    });
    await settled(house, NOTICED_MS);
    assert.equal((await house.api.instance(uuid)).status, 'RUNNING');
    assert.equal(await loginProblem(login), undefined);
  });

  test("an operator's own restarts, one upon the other, are not interfered with", async () => {
    const { uuid, login } = await house.machine();
    const body = { action: 'restart', force: true, timeout: 30 };
    // Rejects when anybody else starts it in between.
    for (const _times of [1, 2, 3, 4, 5]) await change('PUT', `${instancePath(uuid)}/state`, body);
    await eventuallyPasses(NOTICED_MS, async () =>
      assert.equal(await loginProblem(login), undefined),
    );
    await settled(house, NOTICED_MS);
    assert.equal((await house.api.instance(uuid)).status, 'RUNNING');
  });

  test('what was given the name of an instance is not taken for it, and is not deleted', async () => {
    const { uuid, login } = await house.machine();
    const other = await house.machine();
    const name = instancePath(uuid).split('/').at(-1) ?? '';
    const source = instancePath(other.uuid).split('/').at(-1);
    await stop(uuid);
    await change('DELETE', instancePath(uuid));
    const copy = { type: 'copy', source, instance_only: true };
    await change('POST', '/1.0/instances', { name: 'copied', profiles: [], source: copy });
    await change('POST', '/1.0/instances/copied', { name });
    const marks = { config: { 'user.berth.ref': other.uuid } };
    await change('PATCH', instancePath(uuid), marks);
    await eventually('it is missed', NOTICED_MS, async () =>
      (await house.api.instance(uuid)).status === 'UNKNOWN' ? true : undefined,
    );
    assert.notEqual(await loginProblem(login), undefined);
    await house.api.deleteInstance(uuid);
    await house.api.gone(uuid);
    await change('DELETE', instancePath(uuid));
    assert.equal(await loginProblem(other.login), undefined);
    await settled(house, NOTICED_MS);
  });

  test('an instance that was deleted is UNKNOWN, says why, and can be deleted', async () => {
    const { uuid } = await house.machine();
    await stop(uuid);
    await change('DELETE', instancePath(uuid));
    const lost = await eventually('it is missed', NOTICED_MS, async () => {
      const found = await house.api.instance(uuid);
      return found.status === 'UNKNOWN' ? found : undefined;
    });
    assert.match(lost.failure ?? '', /gone from the engine/);
    await house.api.refused(409, 'POST', `/v1/instances/${uuid}/add_key`);
    await house.api.deleteInstance(uuid);
    await house.api.gone(uuid);
    await settled(house, NOTICED_MS);
  });

  test('ports that were taken back are published again', async () => {
    const { uuid, login } = await house.machine();
    const port = house.service.sshPorts.to + 1;
    const body = { add_ports: [port] };
    const path = `/v1/instances/${uuid}/modify`;
    assert.equal((await house.api.call('POST', path, { body })).status, 200);
    const { network, address } = placeOf(house);
    const forward = `/1.0/networks/${network}/forwards/${address}`;
    const published = async () => (await house.service.view.published())?.get(uuid);
    const all = await published();
    assert.equal(all?.length, 2);

    await change('PUT', forward, { config: {}, description: '', ports: [] });
    await eventuallyPasses(NOTICED_MS, async () => assert.deepEqual(await published(), all));
    await change('DELETE', forward);
    await eventuallyPasses(NOTICED_MS, async () => assert.deepEqual(await published(), all));
    await settled(house, NOTICED_MS);
    // Incus shows a port before the firewall has it.
    await eventuallyPasses(NOTICED_MS, async () =>
      assert.equal(await loginProblem(login), undefined),
    );
  });

  test('a snapshot that was deleted is FAILED, cannot be restored, and can be deleted', async () => {
    const { uuid } = await house.machine();
    await house.api.createSnapshot(uuid, 'lost');
    const { id } = await house.api.snapshotReady('lost');
    await change('DELETE', holderPath(id));
    await eventually('it is missed', NOTICED_MS, async () => {
      const [found] = await house.api.snapshots();
      return found?.status === 'FAILED' ? true : undefined;
    });
    const body = { ...SMALL_INSTANCE, template: 'lost' };
    const answer = await house.api.call('POST', '/v1/instances/create', { body });
    assert.ok([400, 409].includes(answer.status), answer.text);
    assert.match(answer.text, /is FAILED/);
    await house.api.deleteSnapshot(id);
    await eventually('it is gone', NOTICED_MS, async () =>
      (await house.api.snapshots()).length === 0 ? true : undefined,
    );
    await settled(house, NOTICED_MS);
  });

  test('a restore that was under way when its snapshot vanished fails, and says why', async () => {
    const { uuid } = await house.machine();
    await house.api.createSnapshot(uuid, 'vanishing');
    const { id } = await house.api.snapshotReady('vanishing');
    await change('DELETE', holderPath(id));
    const body = { ...SMALL_INSTANCE, template: 'vanishing' };
    const answer = await house.api.call('POST', '/v1/instances/create', { body });
    // When the loss was noticed first, it was refused.
    if (answer.status !== 201) return;
    const { uuid: made } = JSON.parse(answer.text) as { uuid: string };
    const failed = await eventually('it has failed', NOTICED_MS, async () => {
      const found = await house.api.instance(made);
      return found.status === 'UNKNOWN' ? found : undefined;
    });
    assert.match(failed.failure ?? '', /snapshot is gone/);
  });
});
