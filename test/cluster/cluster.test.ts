/** Three hosts: where instances go, what a lost host takes with it, and that it comes back. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { SMALL_INSTANCE } from '../support/client.ts';
import type { Instance } from '../support/contract.ts';
import { loginTo, type Machine } from '../support/house.ts';
import { checkErrorBody } from '../support/http.ts';
import { makeKeyPair, saveKey } from '../support/keys.ts';
import { loginProblem, ssh, sshWell } from '../support/ssh.ts';
import { eventually, eventuallyPasses } from '../support/waiting.ts';
import { bootOf, ClusterHouse, reasonToSkip } from './house.ts';
import type { Member } from './member.ts';
import { Watcher } from './watcher.ts';

const skip = await reasonToSkip();
if (skip !== false) console.error(`SKIPPING THE CLUSTER: ${skip}`);

/** "Within seconds": a host is lost after two silences of 1.5 s, and this machine is slow. */
const NOTICE_MS = 15_000;
const RETURN_MS = 40_000;
/** Until the members that are left have chosen another leader: 23 s have been seen. */
const LEADER_MS = 60_000;

let house: ClusterHouse;
/** The instances by the member that has them; the second of `m2` is a restored one. */
const on: Record<'m1' | 'm2' | 'm3', Machine[]> = { m1: [], m2: [], m3: [] };
const { m1, m2, m3 } = on;

before(
  async () => {
    if (skip === false) house = await ClusterHouse.open();
  },
  { timeout: 120_000 },
);
after(async () => house?.dispose());

function nth(machines: readonly Machine[], index: number): Machine {
  const machine = machines[index];
  assert.ok(machine, 'the test before has made it');
  return machine;
}

const member = (name: string): Member => house.cluster.member(name);

async function isUnknown({ uuid }: Machine): Promise<Instance> {
  return eventually(`${uuid} UNKNOWN`, NOTICE_MS, async () => {
    const found = await house.api.instance(uuid);
    return found.status === 'UNKNOWN' ? found : undefined;
  });
}

async function isBack({ uuid, login }: Machine): Promise<void> {
  const found = await eventually(`${uuid} RUNNING`, RETURN_MS, async () => {
    const now = await house.api.instance(uuid);
    return now.status === 'RUNNING' ? now : undefined;
  });
  assert.deepEqual([found.ip, found.port, found.failure], [login.host, login.port, undefined]);
  assert.equal(await loginProblem(login), undefined);
}

/** A generated key is added and opens the door. */
async function takesKey({ uuid, login }: Machine): Promise<void> {
  const keyFile = saveKey(house.keyFolder, (await house.api.addKey(uuid)).key);
  assert.equal(await loginProblem({ ...login, keyFile }), undefined);
}

/** The lost one may have been the leader: until the others have another one, nothing is changed anywhere. */
async function hasLeader({ uuid }: Machine): Promise<void> {
  await eventually('a key on a member that is there', LEADER_MS, async () => {
    const { status } = await house.api.call('POST', `/v1/instances/${uuid}/add_key`);
    return status === 200 ? true : undefined;
  });
}

/** Refused in the words of the contract; `ask` itself insists on an answer within 25 s. */
async function refusesKeys({ uuid }: Machine, statuses: readonly number[]): Promise<void> {
  const { publicKey } = await makeKeyPair(house.keyFolder);
  const path = `/v1/instances/${uuid}`;
  const calls = [
    house.api.call('POST', `${path}/add_key`, { body: { public_key: publicKey } }),
    house.api.call('POST', `${path}/add_key`),
    house.api.call('GET', `${path}/keys`),
  ];
  for (const { status, text } of await Promise.all(calls)) {
    assert.ok(statuses.includes(status), text);
    checkErrorBody(status, text);
  }
}

/** The cluster has what the service has, and nothing else; what was deleted goes after the answer. */
async function nothingIsLeftOver(): Promise<void> {
  const uuids = [...(await house.api.instances()).values()].map(({ uuid }) => `berth-i-${uuid}`);
  await eventuallyPasses(20_000, async () => {
    const names = (await house.listed()).map(({ name }) => name);
    assert.deepEqual(names.toSorted(), uuids.toSorted());
  });
}

test('instances are spread over the members, and reached at their addresses', {
  skip,
}, async () => {
  // One after the other: each goes where the fewest are.
  for (const name of ['m1', 'm2', 'm3'] as const) {
    const machine = await house.machine();
    assert.equal(await house.hostOf(machine), name);
    assert.equal(machine.login.host, member(name).host.address);
    await takesKey(machine);
    on[name].push(machine);
  }
});

test('a template that is to be had on some hosts alone goes there', { skip }, async () => {
  for (const [template, name] of [
    ['first', 'm1'],
    ['third', 'm3'],
  ] as const) {
    const machine = await house.machine({ template });
    assert.equal(await house.hostOf(machine), name);
    on[name].push(machine);
  }
});

test('guests reach neither a host nor each other', { skip }, async () => {
  const addresses = house.cluster.members.map(({ host }) => host.address);
  const [inside = ''] = (await sshWell(nth(m1, 1).login, 'hostname -I')).split(' ');
  const knocks = [`${inside}/22`, ...addresses.map((address) => `${address}/8443`)].map(
    async (door) => {
      const knock = `timeout 3 bash -c '</dev/tcp/${door}'`;
      assert.notEqual((await ssh(nth(m1, 0).login, knock)).code, 0, `${door} is reached`);
    },
  );
  await Promise.all(knocks);
});

test('a snapshot is restored on another member, and outlives its source', { skip }, async () => {
  const { api } = house;
  const source = nth(m1, 1);
  m1.pop();
  const write = 'head -c 3000000 /dev/urandom > data && sha256sum data';
  const checksum = await sshWell(source.login, write);
  await api.createSnapshot(source.uuid, 'to-move');
  const { id } = await api.snapshotReady('to-move');
  const copy = await house.machine({ template: 'to-move' });
  assert.equal(await house.hostOf(copy), 'm2');
  m2.push(copy);
  await api.deleteInstance(source.uuid);
  await api.gone(source.uuid);
  assert.equal(await sshWell(copy.login, 'sha256sum data'), checksum);
  assert.equal(await loginProblem({ ...copy.login, keyFile: source.keyFile }), undefined);
  await takesKey(copy);
  await api.deleteSnapshot(id);
  await nothingIsLeftOver();
});

test('a lost host makes its instances UNKNOWN and nothing else', { skip }, async () => {
  const { api, cluster, service } = house;
  const boots = await Promise.all(m2.map(bootOf));
  const watcher = new Watcher(api);
  await cluster.cutOff(member('m2').host);
  const meanwhile = api.call('POST', `/v1/instances/${nth(m2, 0).uuid}/add_key`);
  for (const machine of m2) {
    const { failure, ip, port } = await isUnknown(machine);
    assert.match(failure ?? '', /host .* does not answer/);
    assert.deepEqual([ip, port], [undefined, undefined]);
  }
  assert.ok([409, 503, 504].includes((await meanwhile).status), (await meanwhile).text);
  await hasLeader(nth(m3, 0));
  for (const machine of [...m1, ...m3]) await takesKey(machine);
  for (const machine of m2) await refusesKeys(machine, [409, 503]);
  const other = await house.machine();
  assert.notEqual(await house.hostOf(other), 'm2');
  assert.deepEqual(await api.snapshots(), []);
  const report = await service.command(['admin', 'engine', 'check']);
  assert.match(report, /m2 (?:does not answer|is offline)/);
  assert.match(report, /m1 is online/);
  await cluster.connect(member('m2').host);
  for (const machine of m2) await isBack(machine);
  assert.deepEqual(await Promise.all(m2.map(bootOf)), boots, 'no guest was started anew');
  await watcher.endsWithSteady([...m1, ...m3]);
  await api.deleteInstance(other.uuid);
  await api.gone(other.uuid);
  await nothingIsLeftOver();
});

test('a member that dies is passed over, its guests run on', { skip }, async () => {
  const { api } = house;
  const boots = await Promise.all(m1.map(bootOf));
  const watcher = new Watcher(api);
  // The first of BERTH_INCUS_URL, and the one that made the cluster: the service speaks to it, and it leads.
  await member('m1').kill();
  for (const machine of m1) await isUnknown(machine);
  assert.equal(await loginProblem(nth(m1, 0).login), undefined, 'the way in is as open as before');
  await hasLeader(nth(m3, 0));
  for (const machine of [...m2, ...m3]) await takesKey(machine);
  await member('m1').start();
  for (const machine of m1) await isBack(machine);
  assert.deepEqual(await Promise.all(m1.map(bootOf)), boots, 'no guest was started anew');
  await watcher.endsWithSteady([...m2, ...m3]);
  for (const machine of m1) await takesKey(machine);
});

test('without a quorum all calls end, and afterwards all is as it was', { skip }, async () => {
  const { api, cluster } = house;
  const watcher = new Watcher(api);
  const pair = await makeKeyPair(house.keyFolder);
  const body = { ...SMALL_INSTANCE, public_key: pair.publicKey, template: 'first' };
  // The member is back, but the cluster may not put anything on it yet.
  const { uuid } = await eventually('room on m1', RETURN_MS, async () => {
    const answer = await api.call('POST', '/v1/instances/create', { body });
    if (answer.status === 503) return undefined;
    assert.equal(answer.status, 201, answer.text);
    return JSON.parse(answer.text) as { uuid: string };
  });
  for (const name of ['m2', 'm3']) await cluster.cutOff(member(name).host);
  const ready = api.call('GET', '/readyz');
  await refusesKeys(nth(m1, 0), [503, 504]);
  for (const machine of [...m2, ...m3]) await isUnknown(machine);
  await refusesKeys(nth(m3, 0), [409, 503]);
  assert.equal((await ready).status, 503, (await ready).text);
  assert.deepEqual(await api.snapshots(), []);
  // Its host is not there, and the service knows.
  const later = { ...body, template: 'third' };
  await api.refused(503, 'POST', '/v1/instances/create', { body: later });
  for (const name of ['m2', 'm3']) await cluster.connect(member(name).host);
  for (const machine of [...m2, ...m3]) await isBack(machine);
  await watcher.endsWithSteady(m1);
  const begun = await eventually('the end of what was under way', RETURN_MS, async () => {
    const now = await api.instance(uuid);
    assert.notEqual(now.status, 'UNKNOWN', now.failure ?? '');
    return now.status === 'RUNNING' ? now : undefined;
  });
  assert.equal(await loginProblem(loginTo(begun, pair.keyFile)), undefined);
  for (const machine of [...m1, ...m2, ...m3]) await takesKey(machine);
  await nothingIsLeftOver();
});

test('what was on a host that is given up can be deleted', { skip }, async () => {
  const { api, cluster, service } = house;
  await api.createSnapshot(nth(m3, 0).uuid, 'on-m3');
  await api.snapshotReady('on-m3');
  await cluster.cutOff(member('m3').host);
  for (const machine of m3) await isUnknown(machine);
  await hasLeader(nth(m1, 0));
  await service.restart();
  for (const machine of [...m1, ...m2]) await isBack(machine);
  for (const machine of m3) await isUnknown(machine);
  assert.deepEqual(
    (await api.snapshots()).map(({ status }) => status),
    ['READY'],
    'not gone',
  );
  await cluster.first.client.change('DELETE', '/1.0/cluster/members/m3', undefined, {
    query: { force: '1' },
    timeoutMs: 60_000,
  });
  const failed = await eventually('the end of the snapshot', RETURN_MS, async () =>
    (await api.snapshots()).find(({ status }) => status === 'FAILED'),
  );
  await api.deleteSnapshot(failed.id);
  for (const { uuid } of m3) await api.deleteInstance(uuid);
  for (const machine of [...m1, ...m2]) await takesKey(machine);
  const other = await house.machine();
  assert.notEqual(await house.hostOf(other), 'm3');
  await nothingIsLeftOver();
});
