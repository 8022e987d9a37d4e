/** What outlives the service, and what a stop and a start of an instance leave in place. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import { openHouse, WAY_UP } from '../support/house.ts';
import { engineUnderTest } from '../support/incus.ts';
import { linesWith } from '../support/key-file.ts';
import { makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import { loginProblem, OpenSession, sshWell } from '../support/ssh.ts';
import { eventuallyPasses, sleep } from '../support/waiting.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service, skipLogins: skip, keyFolder } = house;
const main = await house.machine();

for (const signal of ['SIGTERM', 'SIGINT', 'SIGKILL'] as const) {
  test(`after ${signal} and a start everything is as it was`, async () => {
    const added = await api.addKey(main.id);
    const keyFile = saveKey(keyFolder, added.key);
    const name = `kept-${signal.toLowerCase()}`;
    await api.createSnapshot(main.id, name);
    await api.snapshotReady(name);
    const before = [await api.instances(), await api.snapshots(), await api.tokens()];
    await service.restart(signal);
    const running = await api.reach(main.id, 'RUNNING', []);
    assert.equal(running.uuid, main.uuid);
    const [instances, snapshots, tokens] = before;
    assert.deepEqual(await api.instances(), instances);
    assert.deepEqual(await api.snapshots(), snapshots);
    assert.deepEqual(
      (await api.tokens()).map((token) => token.name),
      (tokens as { name: string }[]).map((token) => token.name),
    );
    if (skip !== false) return;
    assert.deepEqual([...(await service.view.running())], [[main.uuid, 1]], 'adopted, not doubled');
    assert.equal(await loginProblem({ ...main.login, keyFile }), undefined);
    assert.equal(await loginProblem(main.login), undefined);
    assert.equal((await linesWith(main.login, await publicHalf(keyFile))).length, 1);
  });

  test(`a session that was open before ${signal} goes on`, { skip }, async () => {
    const session = await OpenSession.open(main.login, `${keyFolder}/open-${signal}`);
    try {
      await session.do('echo $$ > /tmp/before');
      await service.restart(signal);
      assert.match(await session.do('cat /tmp/before'), /^\d+\n$/);
    } finally {
      await session.close();
    }
  });
}

test('instances answer ssh while the service is down', { skip }, async () => {
  await service.stop();
  assert.equal(await loginProblem(main.login), undefined);
  await service.start();
});

const onExit = `BERTH_${engineUnderTest.toUpperCase()}_ON_EXIT`;
test(`with ${onExit}=stop a stop ends every instance; a start mends it`, { skip }, async () => {
  await service.stop();
  await service.start({ [onExit]: 'stop' });
  await api.reach(main.id, 'RUNNING', ['STARTING', 'STOPPED']);
  await service.stop();
  assert.ok(await service.view.isAtRest());
  await service.start();
  await api.reach(main.id, 'RUNNING', ['STARTING', 'STOPPED']);
  const log = await service.logTail();
  assert.match(log, /"level":30,.*starts again after the planned stop/);
  assert.doesNotMatch(log, /not as it should be/);
  assert.equal(await loginProblem(main.login), undefined);
});

test('an instance that died is noticed and restarted', { skip }, async () => {
  await service.view.kill();
  await sleep(100);
  await eventuallyPasses(20_000, async () => {
    assert.equal(await loginProblem(main.login), undefined);
  });
  // sshd answers a moment before the service has seen it.
  await api.reach(main.id, 'RUNNING', ['STARTING']);
  assert.deepEqual([...(await service.view.running())], [[main.uuid, 1]]);
});

test('a stopped instance refuses keys by its status; started, it is as before', async () => {
  const keyFile = saveKey(keyFolder, (await api.addKey(main.id)).key);
  if (skip === false) await sshWell(main.login, 'echo kept > ~/note');
  await api.stopInstance(main.id);
  const stopped = await api.reach(main.id, 'STOPPED', ['STOPPING', 'RUNNING']);
  assert.equal(stopped.failure, undefined);
  if (skip === false) assert.ok(await service.view.isAtRest());
  const refused = await api.refused(409, 'POST', `/v1/instances/${main.id}/add_key`);
  assert.match(refused.message, /STOPPED/);
  const pair = await makeKeyPair(keyFolder);
  const body = { public_key: pair.publicKey };
  await api.refused(409, 'POST', `/v1/instances/${main.id}/add_key`, { body });

  await api.startInstance(main.id);
  const running = await api.reach(main.id, 'RUNNING', ['STARTING', 'STOPPED']);
  assert.ok(!running.sshPublicKeys.includes(pair.publicKey), 'a refused key is nowhere');
  if (skip !== false) return;
  const login = { ...main.login, port: running.port ?? 0 };
  for (const key of [main.keyFile, keyFile]) {
    assert.equal(await loginProblem({ ...login, keyFile: key }), undefined);
  }
  assert.equal(await sshWell(login, 'cat ~/note'), 'kept\n');
});

test('a stopped instance stays stopped over a restart of the service', async () => {
  const machine = await house.machine();
  await api.stopInstance(machine.id);
  await api.reach(machine.id, 'STOPPED', ['STOPPING', 'RUNNING']);
  await service.restart();
  await sleep(500);
  assert.equal((await api.instance(machine.id)).status, 'STOPPED');
  await api.deleteInstance(machine.id);
  await api.gone(machine.uuid);
});

test('start of what runs and stop of what is stopped do no harm', async () => {
  const answer = await api.call('POST', `/v1/instances/${main.id}/start`);
  assert.ok(answer.status === 200 || answer.status === 409, answer.text);
  await api.reach(main.id, 'RUNNING', ['STARTING']);
});

test('a deleted instance leaves no process; its number is free again', async () => {
  const created = await api.createInstance(SMALL_INSTANCE);
  const running = await api.reach(created.uuid, 'RUNNING', WAY_UP);
  await api.deleteInstance(created.uuid);
  await api.gone(created.uuid);
  await api.refused(404, 'POST', `/v1/instances/${created.uuid}/add_key`);
  await eventuallyPasses(20_000, async () => {
    assert.deepEqual([...(await service.view.running()).keys()], skip === false ? [main.uuid] : []);
  });
  const again = await house.machine();
  assert.ok(Number(again.id) >= 0);
  assert.ok(running.port !== undefined);
  await api.deleteInstance(again.id);
});
