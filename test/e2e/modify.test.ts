/** Changing the size of an instance. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { modified } from '../contract/answers.ts';
import { openHouse } from '../support/house.ts';
import { loginProblem } from '../support/ssh.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service, skipLogins } = house;
const main = await house.machine();
const path = `/v1/instances/${main.id}/modify`;

const modify = (body?: object) => api.expect(200, modified, 'POST', path, { body });
const refuse = (status: number, body: object) => api.refused(status, 'POST', path, { body });

test('every size can be changed, and the instance shows it and stays RUNNING', async () => {
  const body = { cpu_cores: 3, disk_size_gb: 12, ephemeral_disk_gb: 5, mode: 'production' };
  const answer = await modify(body);
  assert.deepEqual(answer, {
    identifier: main.id,
    instance_name: (await api.instance(main.id)).name,
    mode: 'production',
    http_ports: [],
  });
  const now = await api.instance(main.id);
  assert.deepEqual(
    [now.status, now.cpuCores, now.memory, now.storage, now.ephemeralDiskGB, now.mode],
    ['RUNNING', '3', '12', 12, 5, 'production'],
  );
  if (skipLogins === false) assert.equal(await loginProblem(main.login), undefined);
});

test('the answer repeats what was asked for of GPU and mode, as it was written', async () => {
  const answer = await modify({ gpu_type: 'CPU', num_gpus: 1 });
  assert.deepEqual([answer.gpu_type, answer.num_gpus, answer.mode], ['CPU', 1, undefined]);
  assert.equal((await api.instance(main.id)).gpuType, 'CPU');
  assert.deepEqual(Object.keys(await modify({ cpu_cores: 2 })).sort(), [
    'http_ports',
    'identifier',
    'instance_name',
  ]);
});

test('what is left out stays; no body, an empty one and nulls change nothing', async () => {
  const before = await api.instance(main.id);
  const nothing = { cpu_cores: null, gpu_type: null, add_ports: null, unknown: 7 };
  for (const body of [undefined, {}, nothing]) await modify(body);
  await api.expect(200, modified, 'POST', path, {
    rawBody: '',
    headers: { 'content-type': 'application/json' },
  });
  assert.deepEqual(await api.instance(main.id), before);
});

test('a disk only grows: the 400 names both sizes', async () => {
  const { storage } = await api.instance(main.id);
  await modify({ disk_size_gb: storage });
  const { message } = await refuse(400, { disk_size_gb: storage - 1, cpu_cores: 4 });
  assert.match(message, new RegExp(`"disk_size_gb".*\\b${storage - 1}\\b.*\\b${storage}\\b`));
  assert.equal((await api.instance(main.id)).cpuCores, '2');
});

test('what the catalog does not have is a 400 that names field and value', async () => {
  const before = await api.instance(main.id);
  for (const [field, value] of [
    ['cpu_cores', 100_000],
    ['disk_size_gb', 1_000_000],
    ['ephemeral_disk_gb', 1_000_000],
    ['num_gpus', 7],
    ['gpu_type', 'h900'],
  ] as const) {
    const { message } = await refuse(400, { [field]: value });
    assert.match(message, new RegExp(`"${field}" is "?${value}`));
  }
  for (const wrong of [
    { cpu_cores: '2' },
    { cpu_cores: 1.5 },
    { disk_size_gb: true },
    { num_gpus: -1 },
    { mode: 'idle' },
    { gpu_type: 7 },
    { gpu_type: '' },
    { ephemeral_disk_gb: '1' },
    { remove_ports: 9000 },
  ]) {
    const { message } = await refuse(400, wrong);
    assert.match(message, new RegExp(`"${Object.keys(wrong)[0]}"`));
  }
  assert.deepEqual(await api.instance(main.id), before);
});

test('a change is kept over SIGKILL, and by a stopped instance too', async () => {
  await modify({ cpu_cores: 5 });
  await service.restart('SIGKILL');
  const running = await api.reach(main.id, 'RUNNING', []);
  assert.equal(running.cpuCores, '5');
  await api.stopInstance(main.id);
  await api.reach(main.id, 'STOPPED', ['STOPPING']);
  await modify({ cpu_cores: 6 });
  const stopped = await api.instance(main.id);
  assert.deepEqual([stopped.status, stopped.cpuCores], ['STOPPED', '6']);
  await api.startInstance(main.id);
  await api.reach(main.id, 'RUNNING', ['STARTING', 'STOPPED']);
});
