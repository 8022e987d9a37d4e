/** The settings of the Incus engine. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Environment, loadConfig } from '../../src/config.ts';

const problem = (env: Environment): string => {
  try {
    loadConfig(env);
  } catch (error) {
    return (error as Error).message;
  }
  return '';
};

/** Any file that can be read. */
const file = import.meta.filename;
const certificates = {
  BERTH_INCUS_CERT: file,
  BERTH_INCUS_KEY: file,
  BERTH_INCUS_SERVER_CERT: file,
};

test('without settings it is the Incus of this machine', () => {
  assert.deepEqual(loadConfig({ BERTH_ENGINE: 'incus' }).incus, {
    endpoints: ['unix:/var/lib/incus/unix.socket'],
    tls: undefined,
    project: 'default',
    projectPerOrganization: false,
    pool: 'berth',
    network: 'berthbr0',
    listenAddress: undefined,
    nvidiaRuntime: false,
    onExit: 'keep',
  });
});

test('members of a cluster are a list, with the certificates that go with them', () => {
  const url = 'https://10.0.0.1:8443, https://node2:8443';
  const { incus } = loadConfig({ BERTH_INCUS_URL: url, ...certificates });
  assert.deepEqual(incus.endpoints, ['https://10.0.0.1:8443', 'https://node2:8443']);
  assert.deepEqual(incus.tls, { certFile: file, keyFile: file, serverCertFile: file });
});

test('what is no way to Incus is named', () => {
  const socket = 'unix:/run/incus.socket';
  for (const url of ['http://x', '/run/x', 'unix:x', `${socket},${socket}`, `${socket},https://x`])
    assert.match(problem({ BERTH_INCUS_URL: url, ...certificates }), /BERTH_INCUS_URL is/);
});

test('HTTPS needs all three certificate files, and they are there', () => {
  const url = { BERTH_INCUS_URL: 'https://10.0.0.1:8443' };
  for (const name of Object.keys(certificates)) {
    const text = problem({ ...url, ...certificates, [name]: '' });
    assert.match(text, new RegExp(`${name} is not set`));
    const missing = problem({ ...url, ...certificates, [name]: '/nowhere/at/all' });
    assert.match(missing, new RegExp(`${name} is .*cannot be read`));
  }
});

test('names and addresses that cannot be are named', () => {
  for (const name of ['BERTH_INCUS_POOL', 'BERTH_INCUS_NETWORK', 'BERTH_INCUS_PROJECT'])
    assert.match(problem({ [name]: '../x' }), new RegExp(name));
  for (const address of ['0.0.0.0', '127.0.0.1', 'host', '::1'])
    assert.match(problem({ BERTH_INCUS_LISTEN_ADDRESS: address }), /BERTH_INCUS_LISTEN_ADDRESS/);
  const { incus } = loadConfig({ BERTH_INCUS_LISTEN_ADDRESS: '192.0.2.7' });
  assert.equal(incus.listenAddress, '192.0.2.7');
});

test('one project for all, or one for each organization, but not both', () => {
  const each = { BERTH_INCUS_PROJECT_PER_ORGANIZATION: 'true' };
  assert.equal(loadConfig(each).incus.projectPerOrganization, true);
  assert.match(problem({ ...each, BERTH_INCUS_PROJECT: 'mine' }), /BERTH_INCUS_PROJECT goes/);
});
