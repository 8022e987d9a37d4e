/** Limits, proxies and metrics as an operator sets them: from the environment to the answer. */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { after, before, test } from 'node:test';
import { newTenantToken } from '../support/house.ts';
import { ask } from '../support/http.ts';
import { Service } from '../support/service.ts';

const metricsToken = 'scraper-0123456789';
let service: Service;
let token: string;
before(async () => {
  service = await Service.prepare({ sshPorts: 1 });
  token = await newTenantToken(service, 'acme');
});
after(() => service.dispose());

const list = (headers: Record<string, string> = {}) =>
  ask(service.baseUrl, {
    method: 'GET',
    path: '/v1/snapshots/list',
    headers: { authorization: `Bearer ${token}`, ...headers },
  });

const metricsPath = { method: 'GET', path: '/metrics' };

async function metricsUrl(): Promise<string> {
  const lines = (await readFile(service.logFile, 'utf8')).split('\n');
  const found = lines.filter((line) => line.includes('"msg":"metrics"')).at(-1) ?? '{}';
  return new URL((JSON.parse(found) as { url: string }).url).origin;
}

test('as it comes, callers on this machine have no limit, and there are no metrics', async () => {
  await service.start();
  const answer = await list();
  assert.equal(answer.status, 200);
  assert.equal(answer.headers['ratelimit-limit'], undefined);
  assert.equal((await ask(service.baseUrl, metricsPath)).status, 404);
  await service.stop();
});

test('limits that were set are for everybody, behind a trusted proxy for each client', async () => {
  await service.start({
    BERTH_RATE_LIMIT_TOKEN: '4/3600',
    BERTH_RATE_LIMIT_ADDRESS: '2/3600',
    BERTH_RATE_LIMIT_FAILED_AUTH: '1/3600',
    BERTH_TRUSTED_PROXIES: '127.0.0.0/8',
  });
  const from = (address: string) => ({ 'x-forwarded-for': address });
  const statuses: number[] = [];
  for (const address of ['192.0.2.1', '192.0.2.1', '192.0.2.1', '192.0.2.2', '192.0.2.2'])
    statuses.push((await list(from(address))).status);
  assert.deepEqual(statuses, [200, 200, 429, 200, 200]);
  const refused = await list(from('192.0.2.3'));
  assert.equal(refused.status, 429);
  assert.equal(refused.headers['ratelimit-limit'], '4');
  const guess = (address: string) =>
    ask(service.baseUrl, { method: 'GET', path: '/v1/tokens', headers: from(address) });
  assert.equal((await guess('192.0.2.4')).status, 401);
  assert.equal((await guess('192.0.2.4')).status, 429);
  await service.stop();
});

test('metrics with an address are there and only there', async () => {
  await service.start({ BERTH_METRICS_ADDRESS: '127.0.0.1:0' });
  await list();
  assert.equal((await ask(service.baseUrl, metricsPath)).status, 404);
  const { text } = await ask(await metricsUrl(), metricsPath);
  assert.match(text, /route="\/v1\/snapshots\/list",status="2xx"\} 1$/m);
  assert.match(text, /^berth_build_info\{version="\d+\.\d+\.\d+"/m);
  await service.stop();
});

test('metrics with a token and without an address are beside the API', async () => {
  await service.start({ BERTH_METRICS_TOKEN: metricsToken });
  const headers = { authorization: `Bearer ${metricsToken}` };
  assert.equal((await ask(service.baseUrl, metricsPath)).status, 401);
  assert.equal((await ask(service.baseUrl, { ...metricsPath, headers })).status, 200);
  await service.stop();
});

test('metrics with both want the token on their own address', async () => {
  await service.start({
    BERTH_METRICS_ADDRESS: '127.0.0.1:0',
    BERTH_METRICS_TOKEN: metricsToken,
  });
  const headers = { authorization: `Bearer ${metricsToken}` };
  const url = await metricsUrl();
  assert.equal((await ask(service.baseUrl, { ...metricsPath, headers })).status, 404);
  assert.equal((await ask(url, metricsPath)).status, 401);
  assert.equal((await ask(url, { ...metricsPath, headers })).status, 200);
  await service.stop();
});

test('metrics on a port that is taken are a reason not to start', async () => {
  const blocker = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => blocker.once('listening', resolve));
  const bound = blocker.address();
  const port = typeof bound === 'object' && bound ? bound.port : 0;
  try {
    service.launch({ BERTH_METRICS_ADDRESS: `127.0.0.1:${port}` });
    assert.deepEqual(await service.waitForExit(), { code: 1, signal: null });
    assert.match(
      await service.logTail(),
      /metrics cannot be served on 127\.0\.0\.1:\d+ \(EADDRINUSE\)/,
    );
  } finally {
    blocker.close();
  }
});
