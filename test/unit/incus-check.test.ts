/** What `berth admin engine check` and `/health` say about an Incus, by what its server answers. */

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import type { Finding } from '../../src/domain/findings.ts';
import { checkIncus } from '../../src/engines/incus/check.ts';
import { IncusClient } from '../../src/engines/incus/client.ts';
import type { IncusOptions } from '../../src/engines/incus/options.ts';
import { serveAnswers } from '../support/incus-answers.ts';

let folder: string;
let client: IncusClient;
let options: IncusOptions;
/** What a server of Incus would say: `metadata` by path. */
let answers: Record<string, unknown>;

const server = serveAnswers(() => answers);

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'berth-incus-check-'));
  const socket = join(folder, 'unix.socket');
  options = {
    endpoints: [`unix:${socket}`],
    tls: undefined,
    project: 'default',
    projectPerOrganization: false,
    pool: 'berth',
    network: 'berthbr0',
    nvidiaRuntime: false,
    listenAddress: undefined,
    sshPorts: { from: 22_000, to: 22_999 },
    log: () => {},
  };
  client = new IncusClient(options);
  await new Promise<void>((resolve) => {
    server.listen(socket, resolve);
  });
});
after(async () => {
  client.close();
  server.close();
  await rm(folder, { recursive: true, force: true });
});

const environment = {
  server_name: 'lab1',
  server_version: '6.0.4',
  server_clustered: false,
  driver: 'lxc',
};
const pool = (change: object = {}) => ({
  name: 'berth',
  driver: 'btrfs',
  status: 'Created',
  config: { 'user.berth.quotas': 'simple' },
  used_by: [],
  ...change,
});
const network = (config: Record<string, string> = {}) => ({
  name: 'berthbr0',
  type: 'bridge',
  managed: true,
  config: {
    'ipv4.address': '10.213.0.1/20',
    'ipv4.nat': 'true',
    'security.acls': 'berth-berthbr0',
    'dns.mode': 'none',
    ...config,
  },
});

beforeEach(() => {
  answers = {
    '/1.0': { auth: 'trusted', environment },
    '/1.0/storage-pools/berth': pool(),
    '/1.0/storage-pools/berth/resources': { space: { used: 2 ** 30, total: 100 * 2 ** 30 } },
    '/1.0/networks/berthbr0': network(),
    '/1.0/images/aliases': [{ name: 'berth-base', type: 'container' }],
  };
});

/** By topic. What goes by the machine that the tests run on is in there as well. */
async function findings(): Promise<Record<string, Finding>> {
  const all = await checkIncus(client, options);
  return Object.fromEntries(all.map((finding) => [finding.topic, finding]));
}

test('what is well is called good', async () => {
  const found = await findings();
  const topics = ['API', 'version', 'storage pool', 'disk limits', 'space', 'network', 'isolation'];
  for (const topic of [...topics, 'names', 'templates', 'hosts', 'virtual machines'])
    assert.equal(found[topic]?.state, 'good', topic);
});

const cases: readonly {
  readonly name: string;
  readonly path: string;
  readonly answer: unknown;
  readonly topic: string;
  readonly state: Finding['state'];
  readonly says: RegExp;
}[] = [
  {
    name: 'no pool',
    path: '/1.0/storage-pools/berth',
    answer: undefined,
    topic: 'storage pool',
    state: 'missing',
    says: /no pool "berth".*quickstart/,
  },
  {
    name: 'a pool of plain folders',
    path: '/1.0/storage-pools/berth',
    answer: pool({ driver: 'dir', config: {} }),
    topic: 'disk limits',
    state: 'weak',
    says: /none/,
  },
  {
    name: 'the older quotas',
    path: '/1.0/storage-pools/berth',
    answer: pool({ config: { 'user.berth.quotas': 'full' } }),
    topic: 'disk limits',
    state: 'weak',
    says: /snapshots take seconds/,
  },
  {
    name: 'a pool that is nearly full',
    path: '/1.0/storage-pools/berth/resources',
    answer: { space: { used: 95, total: 100 } },
    topic: 'space',
    state: 'weak',
    says: /larger/,
  },
  {
    name: 'a network that is too small',
    path: '/1.0/networks/berthbr0',
    answer: network({ 'ipv4.address': '10.0.0.1/24' }),
    topic: 'network',
    state: 'missing',
    says: /too small for 1000 SSH ports.*\/20/,
  },
  {
    name: 'no access list',
    path: '/1.0/networks/berthbr0',
    answer: network({ 'security.acls': 'other' }),
    topic: 'isolation',
    state: 'weak',
    says: /reach their host/,
  },
  {
    name: 'a bridge whose DNS knows all instances',
    path: '/1.0/networks/berthbr0',
    answer: network({ 'dns.mode': 'managed' }),
    topic: 'names',
    state: 'weak',
    says: /names of all others.*dns\.mode=none/,
  },
  {
    name: 'no template',
    path: '/1.0/images/aliases',
    answer: [{ name: 'debian', type: 'container' }],
    topic: 'templates',
    state: 'missing',
    says: /berth admin image build/,
  },
  {
    name: 'a certificate that is not trusted',
    path: '/1.0',
    answer: { auth: 'untrusted', environment },
    topic: 'API',
    state: 'missing',
    says: /incus config trust add-certificate/,
  },
  {
    name: 'an Incus that is too old',
    path: '/1.0',
    answer: { auth: 'trusted', environment: { ...environment, server_version: '0.7' } },
    topic: 'version',
    state: 'missing',
    says: /6\.0 or later/,
  },
];

for (const { name, path, answer, topic, state, says } of cases) {
  test(`${name} is found, with what to do`, async () => {
    answers[path] = answer;
    const finding = (await findings())[topic];
    assert.equal(finding?.state, state);
    assert.match(`${finding?.found}. ${finding?.advice}`, says);
  });
}

test('members of a cluster that are away are named', async () => {
  const here = options.endpoints[0];
  const nowhere = `unix:${folder}/nobody`;
  answers['/1.0'] = { auth: 'trusted', environment: { ...environment, server_clustered: true } };
  answers['/1.0/cluster/members'] = [
    { server_name: 'm1', url: here, status: 'Online', message: 'Fully operational' },
    { server_name: 'm2', url: here, status: 'Offline', message: 'No heartbeat for 31s' },
    { server_name: 'm3', url: nowhere, status: 'Online', message: 'Fully operational' },
  ];
  const hosts = (await checkIncus(client, options)).filter(({ topic }) => topic === 'host');
  assert.deepEqual(
    hosts.map(({ state, found }) => `${state} ${found}`),
    [
      'good m1 is online',
      'weak m2 is offline: No heartbeat for 31s',
      'weak m3 does not answer: its instances are UNKNOWN',
    ],
  );
});
