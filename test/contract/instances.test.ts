/** The contract's "Instances" and "Snapshots", where replay.test.ts says nothing: sizes, ports, states, restores. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { checkAddedKey, SMALL_INSTANCE } from '../support/client.ts';
import { createdInstance, type Instance, instance } from '../support/contract.ts';
import { openHouse } from '../support/house.ts';
import { isFree } from '../support/ports.ts';
import { eventually } from '../support/waiting.ts';
import { modified, templates } from './answers.ts';
import { wantedInstance } from './operations.ts';

const house = await openHouse();
after(() => house.dispose());
const { api } = house;
const main = await house.machine();
const modifyPath = `/v1/instances/${main.id}/modify`;
const portsPath = `/v1/instances/${main.id}/ports`;

const running = (): Promise<Instance> =>
  api.reach(main.id, 'RUNNING', ['MODIFYING', 'STOPPING', 'STARTING']);
const modify = async (body: object, method = 'POST', path = modifyPath) => {
  const answer = await api.expect(200, modified, method, path, { body });
  await running();
  return answer;
};

/** Ports that nobody uses now. */
async function freePorts(count: number): Promise<number[]> {
  const found: number[] = [];
  for (let port = 33_500; found.length < count; port += 1) if (await isFree(port)) found.push(port);
  return found;
}

test('"every time field either parses as RFC 3339 or is absent"; provisioningTime only while it applies', async () => {
  const { uuid } = await api.createInstance(SMALL_INSTANCE);
  const seen = new Set<string>();
  await eventually('RUNNING', 20_000, async () => {
    const one = await api.expect(200, instance, 'GET', `/v1/instances/${uuid}`);
    seen.add(one.status);
    for (const time of [one.createdAt, one.provisioningTime, one.restoringTime]) {
      if (time !== undefined) assert.ok(!Number.isNaN(Date.parse(time)), time);
    }
    assert.equal(one.provisioningTime !== undefined, one.status === 'PROVISIONING', one.status);
    assert.equal(one.restoringTime, undefined);
    return one.status === 'RUNNING' ? true : undefined;
  });
  assert.ok(!seen.has('STOPPED') && !seen.has('UNKNOWN'));
  await api.deleteInstance(uuid);
});

test('a template by its key and by its display name', async () => {
  const known = await api.expect(200, templates, 'GET', '/v1/thunder-templates');
  const name = known.get(SMALL_INSTANCE.template)?.displayName ?? '';
  const body = { ...wantedInstance, template: name };
  const made = await api.expect(201, createdInstance, 'POST', '/v1/instances/create', { body });
  assert.equal((await api.instance(made.uuid)).gpuType, 'CPU');
  assert.ok(
    made.key.startsWith('-----BEGIN OPENSSH PRIVATE KEY-----\n'),
    'no public key was given',
  );
  await api.reach(made.uuid, 'RUNNING', ['PROVISIONING', 'STARTING']);
  await api.deleteInstance(made.uuid);
});

test('"Identifiers count up from 0 and are not reused while an instance holds one"', async () => {
  const numbers = [...(await api.instances()).keys()].map(Number);
  assert.ok(numbers.includes(0));
  const { identifier, uuid } = await api.createInstance(SMALL_INSTANCE);
  assert.ok(!numbers.includes(identifier) && identifier > Math.max(...numbers));
  await api.reach(uuid, 'RUNNING', ['PROVISIONING', 'STARTING']);
  await api.deleteInstance(uuid);
});

test('modify: disk_size_gb may only grow; the 400 names it', async () => {
  await modify({ disk_size_gb: 14 });
  assert.equal((await running()).storage, 14);
  const refused = await api.refused(400, 'POST', modifyPath, { body: { disk_size_gb: 13 } });
  assert.match(refused.message, /disk_size_gb/);
  assert.equal((await running()).storage, 14);
});

test('modify: cores, mode and a GPU type echoed as written; the fields of its answer', async () => {
  const answer = await modify({ cpu_cores: 2, mode: 'production', gpu_type: 'Cpu', num_gpus: 1 });
  const now = await running();
  assert.deepEqual(
    [now.cpuCores, now.mode, now.gpuType, now.numGpus],
    ['2', 'production', 'Cpu', '1'],
  );
  assert.deepEqual([answer.identifier, answer.instance_name], [main.id, now.name]);
  assert.deepEqual(
    [answer.gpu_type ?? 'Cpu', answer.mode ?? 'production', answer.num_gpus ?? 1],
    ['Cpu', 'production', 1],
  );
  for (const [field, value] of [
    ['cpu_cores', 100_000],
    ['gpu_type', 'h9000'],
    ['num_gpus', 99],
    ['disk_size_gb', 100_000_000],
  ] as const) {
    const refused = await api.refused(400, 'POST', modifyPath, { body: { [field]: value } });
    assert.match(refused.message, new RegExp(field));
  }
  assert.deepEqual(await running(), now, 'nothing changed');
});

test('the key of the instance is as before after all that', async () => {
  assert.deepEqual((await running()).sshPublicKeys, [main.publicKey]);
  const body = { public_key: main.publicKey };
  checkAddedKey(await api.call('POST', `/v1/instances/${main.id}/add_key`, { body }));
});

test('PATCH ports: "200, as modify; all or nothing"', async () => {
  const [one = 0, two = 0, three = 0] = await freePorts(3);
  const patch = (body: object) => modify(body, 'PATCH', portsPath);
  const sorted = (ports: readonly number[]): number[] => [...ports].sort((a, b) => a - b);
  assert.deepEqual(sorted((await patch({ add_ports: [one, two] })).http_ports), [one, two]);
  assert.deepEqual(sorted((await patch({ add_ports: [one] })).http_ports), [one, two], 'again');
  const swapped = await patch({ add_ports: [three], remove_ports: [one] });
  assert.deepEqual(sorted(swapped.http_ports), [two, three]);
  for (const wrong of [0, -1, 65_536, 22]) {
    const body = { add_ports: [one, wrong], remove_ports: [two] };
    const refused = await api
      .refused(wrong === 22 ? 409 : 400, 'PATCH', portsPath, { body })
      .catch(() => api.refused(400, 'PATCH', portsPath, { body }));
    assert.ok(refused.message.includes(String(wrong)) || /add_ports/.test(refused.message));
    assert.deepEqual(sorted((await running()).httpPorts), [two, three], 'nothing of it happened');
  }
  await patch({ remove_ports: [two, three] });
  assert.deepEqual((await running()).httpPorts, []);
});

test('a port that another instance has is a 409 that names it', async () => {
  const [port = 0] = await freePorts(1);
  const other = await house.machine();
  await modify({ add_ports: [port] });
  const path = `/v1/instances/${other.id}/ports`;
  const refused = await api.refused(409, 'PATCH', path, { body: { add_ports: [port] } });
  assert.match(refused.message, new RegExp(String(port)));
  await modify({ remove_ports: [port] });
  await api.deleteInstance(other.id);
});

test('snapshot names: "1-63 of letters, digits, ., _, -, starting with a letter or digit"', async () => {
  for (const name of ['', '-a', '.a', '_a', 'a'.repeat(64), 'a b', 'é', 'a/b']) {
    const body = { instanceId: main.id, name };
    const refused = await api.refused(400, 'POST', '/v1/snapshots/create', { body });
    assert.match(refused.message, /name/);
  }
  const body = { instanceId: main.uuid, name: `9${'._-'.repeat(20)}ab` };
  await api.expect(202, () => true, 'POST', '/v1/snapshots/create', { body });
  const ready = await api.snapshotReady(body.name);
  await api.deleteSnapshot(ready.id);
});

test('restore: "disk_size_gb below its minimum -> 400 that names the minimum"; restoringTime while it applies', async () => {
  await api.createSnapshot(main.id, 'to-restore');
  const { id, minimumDiskSizeGb } = await api.snapshotReady('to-restore');
  const wanted = { ...wantedInstance, template: 'to-restore' };
  const small = { ...wanted, disk_size_gb: minimumDiskSizeGb - 1 };
  if (small.disk_size_gb >= 1) {
    const refused = await api.refused(400, 'POST', '/v1/instances/create', { body: small });
    assert.match(refused.message, new RegExp(`\\b${minimumDiskSizeGb}\\b`));
  }
  const body = { ...wanted, disk_size_gb: 20 };
  const made = await api.expect(201, createdInstance, 'POST', '/v1/instances/create', { body });
  await eventually('RUNNING', 20_000, async () => {
    const one = await api.instance(made.uuid);
    assert.equal(one.restoringTime !== undefined, one.status === 'RESTORING', one.status);
    assert.ok(['RESTORING', 'STARTING', 'RUNNING'].includes(one.status), one.status);
    if (one.status !== 'RESTORING') return one.status === 'RUNNING' ? true : undefined;
    const busy = await api.call('DELETE', `/v1/snapshots/${id}`);
    const over = (await api.instance(made.uuid)).status !== 'RESTORING';
    assert.ok(busy.status === 409 || over, `409 while a restore reads it: ${busy.text}`);
    return undefined;
  });
  const shown = (await api.instance(made.uuid)).sshPublicKeys;
  assert.ok(shown.length >= 1, 'the key of the restore');
});

test('start and stop answer a message, and stop what they say', async () => {
  await api.stopInstance(main.id);
  await api.reach(main.id, 'STOPPED', ['STOPPING']);
  await api.startInstance(main.id);
  await api.reach(main.id, 'RUNNING', ['STARTING']);
});
