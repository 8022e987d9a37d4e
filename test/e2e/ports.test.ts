/** Published ports: a real HTTP server inside a real instance, reached by real HTTP through the host's port. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Readiness } from '../../src/api/service.ts';
import { modified } from '../contract/answers.ts';
import type { Api } from '../support/client.ts';
import { fetchText, occupy, openRequest, serveInGuest, vacate } from '../support/guest-server.ts';
import { openHouse } from '../support/house.ts';
import { exchange } from '../support/http.ts';
import { engineUnderTest, onlyOn } from '../support/incus.ts';
import { claimPorts } from '../support/ports.ts';
import { allProcesses, type HostProcess, networkHelpersOf } from '../support/processes.ts';
import { sshWell } from '../support/ssh.ts';
import { eventuallyPasses } from '../support/waiting.ts';

const house = await openHouse();
after(() => house.dispose());
const { api, service, skipLogins: skip } = house;
const main = await house.machine();
/** Published ports are on the address that SSH is on. */
const HOST = main.login.host;
const stranger = await house.tenant('umbrella');
const range = await claimPorts(60);
let nextPort = range.from;
const newPort = (): number => nextPort++;

const change = (id: string, body: object, by: Api = api) =>
  by.expect(200, modified, 'PATCH', `/v1/instances/${id}/ports`, { body });
const refuse = (status: number, id: string, body: object, by: Api = api) =>
  by.refused(status, 'PATCH', `/v1/instances/${id}/ports`, { body });
const portsOf = async (id: string, by: Api = api) => (await by.instance(id)).httpPorts;
const clear = async (id: string) => change(id, { remove_ports: await portsOf(id) });

/** A deleted instance is gone for callers at once, and its ports when the engine has ended it. */
const isFreeAgain = (port: number) =>
  eventuallyPasses(20_000, async () => {
    assert.deepEqual((await change(main.id, { add_ports: [port] })).http_ports, [port]);
  });

const onSandbox = onlyOn('sandbox', 'its instances are told where to listen');
const readyz = await exchange(service.baseUrl, { method: 'GET', path: '/readyz' });
const { capabilities } = JSON.parse(readyz.text) as Readiness;
const sharedNetwork = capabilities.ownNetwork && 'instances have networks of their own here';
const forwards = engineUnderTest === 'sandbox';
test('an instance knows the address that its servers are to listen on', {
  skip: skip || onSandbox,
}, async () => {
  const told = (await sshWell(main.login, 'echo $BERTH_ADDRESS')).trimEnd();
  const address = capabilities.ownNetwork ? /^127\.0\.0\.1$/ : /^127\.64\.\d{1,3}\.\d{1,3}$/;
  assert.match(told, address);
  const { name } = await api.instance(main.id);
  assert.match(await sshWell(main.login, `getent hosts ${name}`), new RegExp(`^${told} `));
});

test('a port is published and taken back while the instance runs', { skip }, async () => {
  const [one, two] = [newPort(), newPort()];
  await serveInGuest(main.login, one, { body: 'one', hold: true });
  await serveInGuest(main.login, two, { body: 'two' });
  const answer = await change(main.id, { add_ports: [two, one] });
  const { name } = await api.instance(main.id);
  assert.deepEqual(answer, { identifier: main.id, instance_name: name, http_ports: [one, two] });
  assert.deepEqual(await portsOf(main.id), [one, two]);
  assert.deepEqual((await api.instances()).get(main.id)?.httpPorts, [one, two]);
  assert.equal(await fetchText(HOST, two), 'two');
  const open = await openRequest(HOST, one);
  // Orderly or by a reset: `once` of node:events would make an error of that.
  const cut = new Promise((resolve) => open.once('close', resolve));
  assert.deepEqual((await change(main.id, { remove_ports: [one] })).http_ports, [two]);
  await cut;
  assert.equal(await fetchText(HOST, one), 'ECONNREFUSED');
  assert.equal(await fetchText(HOST, two), 'two');
  await clear(main.id);
  assert.equal(await fetchText(HOST, two), 'ECONNREFUSED');
});

test('the same request again does no harm', async () => {
  const [one, two] = [newPort(), newPort()];
  for (let times = 0; times < 2; times += 1) {
    const { http_ports } = await change(main.id, { add_ports: [one], remove_ports: [two] });
    assert.deepEqual(http_ports, [one]);
  }
  for (let times = 0; times < 2; times += 1)
    assert.deepEqual((await change(main.id, { remove_ports: [one] })).http_ports, []);
});

for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
  test(`after ${signal} and a start of the service the ports are back`, { skip }, async () => {
    const port = newPort();
    await serveInGuest(main.login, port, { body: signal });
    await change(main.id, { add_ports: [port] });
    const helpers = networkHelpersOf(service.pid ?? 0);
    assert.equal(helpers.length, forwards && capabilities.ownNetwork ? 1 : 0);
    await service.end(signal);
    const isLeft = ({ pid }: HostProcess) => helpers.some((helper) => helper.pid === pid);
    await eventuallyPasses(10_000, () => assert.deepEqual(allProcesses().filter(isLeft), []));
    const meanwhile = await fetchText(HOST, port);
    assert.equal(meanwhile, forwards ? 'ECONNREFUSED' : signal);
    await service.start();
    assert.deepEqual(await portsOf(main.id), [port]);
    assert.equal(await fetchText(HOST, port), signal);
    await clear(main.id);
  });
}

test('a port is closed while the instance is stopped, and open when it is started', {
  skip,
}, async () => {
  const [port, later] = [newPort(), newPort()];
  const machine = await house.machine();
  await change(machine.id, { add_ports: [port] });
  await api.stopInstance(machine.id);
  await api.reach(machine.id, 'STOPPED', ['STOPPING']);
  assert.equal(await fetchText(HOST, port), 'ECONNREFUSED');
  assert.deepEqual((await change(machine.id, { add_ports: [later] })).http_ports, [port, later]);
  const own = Number(new URL(service.baseUrl).port);
  assert.match((await refuse(409, machine.id, { add_ports: [own] })).message, new RegExp(`${own}`));
  const taken = await occupy(later, HOST);
  await api.startInstance(machine.id);
  const running = await api.reach(machine.id, 'RUNNING', ['STARTING', 'STOPPED']);
  const login = { ...machine.login, port: running.port ?? 0 };
  await serveInGuest(login, port, { body: 'started' });
  await serveInGuest(login, later, { body: 'later' });
  assert.equal(await fetchText(HOST, port), 'started', 'a port that is taken holds up no other');
  const { message } = await refuse(409, machine.id, { add_ports: [later] });
  assert.match(message, new RegExp(`${later}`), 'recorded is not open');
  assert.equal(await fetchText(HOST, port), 'started');
  await vacate(taken);
  await eventuallyPasses(20_000, async () => assert.equal(await fetchText(HOST, later), 'later'));
  await api.deleteInstance(machine.id);
  await api.gone(machine.uuid);
  await isFreeAgain(port);
  await clear(main.id);
});

test('a port that the host uses is a 409 that names it, and nothing is done', async () => {
  const [free, taken] = [newPort(), newPort()];
  const server = await occupy(taken, HOST);
  const { storage } = await api.instance(main.id);
  const body = { add_ports: [free, taken], disk_size_gb: storage + 1 };
  const { message } = await api.refused(409, 'POST', `/v1/instances/${main.id}/modify`, { body });
  assert.match(message, new RegExp(`\\b${taken}\\b`));
  const now = await api.instance(main.id);
  assert.deepEqual([now.httpPorts, now.storage], [[], storage]);
  assert.equal(await fetchText(HOST, free), 'ECONNREFUSED');
  await vacate(server);
  await change(main.id, { add_ports: [free, taken] });
  await clear(main.id);
});

test('the port of another instance is a 409 that does not say whose it is', async () => {
  const port = newPort();
  const other = await house.machine({}, stranger);
  await change(other.id, { add_ports: [port] }, stranger);
  const { message } = await refuse(409, main.id, { add_ports: [port] });
  assert.match(message, new RegExp(`\\b${port}\\b`));
  assert.ok(!message.includes(other.uuid) && !message.includes('umbrella'));
  await stranger.stopInstance(other.id);
  await stranger.reach(other.id, 'STOPPED', ['STOPPING']);
  assert.equal((await refuse(409, main.id, { add_ports: [port] })).message, message);
  await stranger.deleteInstance(other.id);
  await stranger.gone(other.uuid);
  await isFreeAgain(port);
  await clear(main.id);
});

test('of two instances that want one port at the same moment, one gets it', async () => {
  const other = await house.machine();
  for (let round = 0; round < 8; round += 1) {
    const port = newPort();
    const ask = (id: string) =>
      api.call('PATCH', `/v1/instances/${id}/ports`, { body: { add_ports: [port] } });
    const answers = await Promise.all([ask(main.id), ask(other.id)]);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 409]);
    const winner = answers[0]?.status === 200 ? main.id : other.id;
    const loser = winner === main.id ? other.id : main.id;
    assert.deepEqual([await portsOf(winner), await portsOf(loser)], [[port], []]);
    await clear(winner);
  }
  await api.deleteInstance(other.id);
  await api.gone(other.uuid);
});

test('many changes of one instance at the same moment all land', async () => {
  const ports = Array.from({ length: 16 }, newPort);
  await Promise.all(ports.map((port) => change(main.id, { add_ports: [port] })));
  assert.deepEqual(await portsOf(main.id), ports);
  await Promise.all(ports.map((port) => change(main.id, { remove_ports: [port] })));
  assert.deepEqual(await portsOf(main.id), []);
});

test('a server of the guest on all addresses is named as a possible reason', {
  skip: skip || sharedNetwork,
}, async () => {
  const port = newPort();
  await serveInGuest(main.login, port, { body: 'everywhere', address: '0.0.0.0' });
  const { message } = await refuse(409, main.id, { add_ports: [port] });
  assert.match(message, new RegExp(`\\b${port}\\b.*\\$BERTH_ADDRESS`));
});

test('what cannot be a port is a 400 that names it', async () => {
  const one = newPort();
  const many = Array.from({ length: 33 }, (_, index) => 40_000 + index);
  for (const [body, named] of [
    [{ add_ports: [0] }, 0],
    [{ add_ports: [65_536] }, 65_536],
    [{ remove_ports: [-1] }, -1],
    [{ add_ports: [22] }, 22],
    [{ add_ports: [one, one] }, one],
    [{ remove_ports: [one, one] }, one],
    [{ add_ports: [one], remove_ports: [one] }, one],
    [{ add_ports: [service.sshPorts.from] }, service.sshPorts.from],
    [{ add_ports: many }, 33],
  ] as const) {
    const { message } = await refuse(400, main.id, body);
    assert.match(message, new RegExp(`(^|\\D)${named}\\b`), message);
  }
  for (const wrong of ['8000', 8000, {}, ['8000'], [8000.5], [null], [[8000]]]) {
    const { message } = await refuse(400, main.id, { add_ports: wrong });
    assert.match(message, /add_ports/);
  }
  assert.deepEqual(await portsOf(main.id), []);
});

test('no body, an empty one and nulls change nothing', async () => {
  const path = `/v1/instances/${main.id}/ports`;
  for (const options of [
    {},
    { body: {} },
    { body: { add_ports: null, remove_ports: null } },
    { rawBody: '', headers: { 'content-type': 'application/json' } },
  ])
    assert.deepEqual((await api.expect(200, modified, 'PATCH', path, options)).http_ports, []);
});

test('another organization cannot publish, and learns nothing', async () => {
  const body = { add_ports: [newPort()] };
  const foreign = await refuse(404, main.uuid, body, stranger);
  const unknown = await refuse(404, '987654', body, stranger);
  assert.equal(foreign.message.replace(main.uuid, ''), unknown.message.replace('987654', ''));
});
