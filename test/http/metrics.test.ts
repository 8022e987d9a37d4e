/** What Prometheus reads, who may read it, and what never stands in it. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { Callers } from '../../src/http/callers.ts';
import { openEdge } from '../../src/http/edge.ts';
import { answerMetrics, Metrics } from '../../src/http/metrics.ts';
import { RateLimiter } from '../../src/http/rate-limit.ts';
import { openServer } from '../../src/http/server.ts';
import type { ServiceContext } from '../../src/services/context.ts';
import { StatisticsService } from '../../src/services/statistics.ts';
import { insertSnapshot } from '../../src/store/snapshots.ts';
import { ask } from '../support/http.ts';
import { claimPorts } from '../support/ports.ts';
import { type Served, serve } from './served.ts';

const secret = 'a-token-for-prometheus-alone';
let metrics: Metrics;

function makeEdge(context: ServiceContext) {
  const { now, log } = context;
  const callers = new Callers();
  const limits = { failedAuth: { requests: 5, windowSeconds: 60, sparesLocal: false } };
  const limiter = new RateLimiter({ limits, callers, now, log });
  metrics = new Metrics({ statistics: new StatisticsService(context), version: '9.8.7', log });
  return { callers, limiter, metrics, metricsToken: secret };
}

let served: Served;
let token: string;
before(async () => {
  served = await serve(await claimPorts(1), makeEdge);
  token = await served.newToken();
});
after(() => served.close());

const call = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  ask(served.url, { method, path, headers });

const withToken = (path: string, method = 'GET', headers: Record<string, string> = {}) =>
  call(path, { authorization: `Bearer ${token}`, ...headers }, method);

async function scrape(): Promise<Map<string, number>> {
  const { status, text, headers } = await call('/metrics', { authorization: `Bearer ${secret}` });
  assert.equal(status, 200);
  assert.match(headers['content-type'] ?? '', /^text\/plain; version=0\.0\.4/);
  return parse(text);
}

/** The exposition format, strictly enough to find what Prometheus would refuse. */
function parse(text: string): Map<string, number> {
  assert.ok(text.endsWith('\n'));
  const found = new Map<string, number>();
  const types = new Set<string>();
  for (const line of text.split('\n').filter((one) => one !== '')) {
    const type = /^# TYPE (\S+) \w+$/.exec(line)?.[1];
    if (type !== undefined) {
      assert.ok(!types.has(type), `${type} twice`);
      types.add(type);
    }
    if (line.startsWith('#')) continue;
    const match = /^([a-z_0-9]+(?:\{[^}]*\})?) (\S+)$/i.exec(line);
    assert.ok(match, line);
    const [, name = '', value] = match;
    assert.ok(!found.has(name), `${name} twice`);
    found.set(name, Number(value));
  }
  return found;
}

const counted = (found: Map<string, number>, method: string, route: string, status: string) =>
  found.get(
    `berth_http_request_duration_seconds_count{method="${method}",route="${route}",status="${status}"}`,
  ) ?? 0;

test('only its own token opens it, and wrong ones count as guesses', async () => {
  const wrongs = [{}, { authorization: `Bearer ${token}` }, { authorization: `Bearer ${secret}x` }];
  for (const headers of wrongs) {
    const answer = await call('/metrics', headers);
    assert.equal(answer.status, 401);
    assert.doesNotMatch(answer.text, /berth_http/);
  }
  assert.equal((await call('/metrics', { authorization: `Basic ${secret}` })).status, 401);
  assert.equal((await call('/metrics', { authorization: 'Bearer x' })).status, 401);
  assert.equal((await call('/metrics', { authorization: 'Bearer x' })).status, 429);
  served.shop.clock.nowMs += 60_000;
  assert.equal((await call('/metrics', { authorization: `Bearer ${secret}` })).status, 200);
});

test('its token opens nothing else', async () => {
  const answer = await call('/v1/snapshots/list', { authorization: `Bearer ${secret}` });
  assert.equal(answer.status, 401);
});

test('without a token for it there is no such path', async () => {
  const plain = await serve(await claimPorts(1), (context) => ({
    ...openEdge(context.log),
    metrics,
  }));
  try {
    for (const headers of [{}, { authorization: `Bearer ${secret}` }])
      assert.equal(
        (await ask(plain.url, { method: 'GET', path: '/metrics', headers })).status,
        404,
      );
  } finally {
    await plain.close();
  }
});

test('requests count by route, method and class of status, both ways of the list alike', async () => {
  const before = await scrape();
  for (const headers of [{ 'x-ordinary': 'yes' }, {}, {}])
    assert.equal((await withToken('/v1/snapshots/list', 'GET', headers)).status, 200);
  await withToken('/v1/instances/4711');
  await withToken('/no/such/path');
  const found = await scrape();
  const list = '/v1/snapshots/list';
  const grown = (method: string, route: string, status: string) =>
    counted(found, method, route, status) - counted(before, method, route, status);
  assert.equal(grown('GET', list, '2xx'), 3);
  assert.equal(grown('GET', '/v1/instances/:id', '4xx'), 1);
  assert.equal(grown('GET', '(unknown)', '4xx'), 1);
  assert.equal(grown('GET', '/metrics', '2xx'), 1, 'the scrape before');
  const labels = `method="GET",route="${list}",status="2xx"`;
  const all = found.get(`berth_http_request_duration_seconds_bucket{le="+Inf",${labels}}`);
  assert.equal(all, counted(found, 'GET', list, '2xx'));
});

test('buckets count what is at most as long, and sums add up', () => {
  const series = metrics.http.series('/of/a/test', 'GET', 204);
  for (const seconds of [0.001, 0.002, 0.3, 99]) series.observe(seconds);
  const found = parse(metrics.http.text());
  const labels = 'method="GET",route="/of/a/test",status="2xx"';
  const below = (bound: string) =>
    found.get(`berth_http_request_duration_seconds_bucket{le="${bound}",${labels}}`);
  assert.deepEqual(['0.001', '0.005', '0.25', '0.5', '25', '+Inf'].map(below), [1, 2, 2, 3, 3, 4]);
  assert.equal(found.get(`berth_http_request_duration_seconds_sum{${labels}}`), 99.303);
});

test('whatever callers send makes no new series', async () => {
  await call('/nowhere/1');
  const size = (await scrape()).size;
  for (const path of ['/nowhere/2', '/v1/instances/1/2/3', '/%41', '/metrics/x']) await call(path);
  for (const method of ['PROPFIND', 'LOCK', 'PURGE']) await call('/nowhere', {}, method);
  const afterwards = (await scrape()).size;
  const perSeries = 16;
  assert.ok(afterwards - size <= perSeries, `${afterwards - size} lines more`);
});

test('adding keys counts by outcome', async () => {
  await withToken('/v1/instances/99/add_key', 'POST');
  await call('/v1/instances/99/add_key', {}, 'POST');
  const found = await scrape();
  assert.equal(found.get('berth_add_key_total{outcome="not_found"}'), 1);
  assert.equal(found.get('berth_add_key_total{outcome="unauthorized"}'), 1);
  assert.equal(found.get('berth_add_key_total{outcome="done"}'), 0);
});

test('what there is counts by status, zeroes included', async () => {
  const before = await scrape();
  assert.equal(before.get('berth_snapshots{status="FAILED"}'), 0);
  assert.equal(before.get('berth_instances{status="RUNNING"}'), 0);
  assert.equal(before.get('berth_operations{state="running"}'), 0);
  assert.equal(before.get('berth_engine_up'), 1);
  assert.equal(before.get('berth_database_up'), 1);
  const ids = { id: newId(), org_id: served.shop.actor.orgId, instance_id: 'none' };
  const facts = { minimum_disk_size_gb: 10, created_at: 0, deleted_at: null };
  await insertSnapshot(served.shop.store.db, {
    ...ids,
    ...facts,
    engine_ref: newId(),
    name: 'of-an-organization',
    status: 'FAILED',
  });
  const found = await scrape();
  assert.equal(found.get('berth_snapshots{status="FAILED"}'), 1);
});

test('an engine that is away shows, and takes nothing else with it', async () => {
  served.shop.faults.inject('health', 1);
  const found = await scrape();
  assert.equal(found.get('berth_engine_up'), 0);
  assert.equal(found.get('berth_database_up'), 1);
  assert.ok(found.has('process_resident_memory_bytes'));
  assert.equal((await scrape()).get('berth_engine_up'), 1);
});

test('what runs is told, and nothing of whom it runs for', async () => {
  const { text } = await call('/metrics', { authorization: `Bearer ${secret}` });
  assert.match(
    text,
    /^berth_build_info\{version="9\.8\.7",node="v\d+[^"]*",engine="sandbox"\} 1$/m,
  );
  for (const word of ['workshop', 'of-an-organization', 'berth_0', token, secret, '4711'])
    assert.ok(!text.includes(word), word);
  assert.ok(!text.includes(served.shop.actor.orgId));
});

test('its own listener answers that path alone, and wants the token when there is one', async () => {
  for (const [own, statuses] of [
    [undefined, [200, 200]],
    [secret, [401, 200]],
  ] as const) {
    const server = openServer(answerMetrics(metrics, own)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const get = (path: string, headers = {}, method = 'GET') =>
        ask(url, { method, path, headers });
      const right = { authorization: `Bearer ${secret}` };
      assert.equal((await get('/metrics')).status, statuses[0]);
      assert.equal((await get('/metrics', right)).status, statuses[1]);
      for (const path of ['/', '/v1/snapshots/list', '/metrics/', '/healthz'])
        assert.equal((await get(path, right)).status, 404, path);
      assert.equal((await get('/metrics', right, 'POST')).status, 404);
    } finally {
      server.close();
    }
  }
});
