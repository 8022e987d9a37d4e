/** The settings of limits, proxies, HTTPS and metrics. */

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

test('the defaults protect, but not from callers on this machine', () => {
  const { rateLimits, trustedProxies, tls, metrics } = loadConfig({});
  for (const limit of [rateLimits.token, rateLimits.address, rateLimits.failedAuth])
    assert.equal(limit?.sparesLocal, true);
  assert.deepEqual([trustedProxies, tls, metrics], [[], { kind: 'none' }, {}]);
});

test('a limit that was set is for everybody, and off is off', () => {
  const { rateLimits } = loadConfig({
    BERTH_RATE_LIMIT_TOKEN: '10/2',
    BERTH_RATE_LIMIT_ADDRESS: 'off',
  });
  assert.deepEqual(rateLimits.token, { requests: 10, windowSeconds: 2, sparesLocal: false });
  assert.equal(rateLimits.address, undefined);
});

test('limits that are none are named', () => {
  for (const text of ['10', '10/0', '0/60', '/60', '10/', '10/60s', '-1/60', '1/86401', 'none'])
    assert.match(problem({ BERTH_RATE_LIMIT_FAILED_AUTH: text }), /BERTH_RATE_LIMIT_FAILED_AUTH/);
});

test('proxies are addresses and networks', () => {
  const { trustedProxies } = loadConfig({ BERTH_TRUSTED_PROXIES: '10.0.0.2, fd00::/8 ' });
  assert.deepEqual(trustedProxies, ['10.0.0.2', 'fd00::/8']);
  assert.match(problem({ BERTH_TRUSTED_PROXIES: '10.0.0.2,nginx' }), /has "nginx"/);
});

test('half a pair, or a pair and self-signed, is a mistake', () => {
  assert.match(problem({ BERTH_TLS_CERT: 'c.pem' }), /BERTH_TLS_KEY is not/);
  assert.match(problem({ BERTH_TLS_KEY: 'k.pem' }), /BERTH_TLS_CERT is not/);
  const both = { BERTH_TLS_CERT: 'c.pem', BERTH_TLS_KEY: 'k.pem' };
  assert.equal(loadConfig(both).tls.kind, 'files');
  assert.match(problem({ ...both, BERTH_TLS_SELF_SIGNED: 'true' }), /goes without/);
});

test('metrics have an address, a token or neither', () => {
  const { metrics } = loadConfig({
    BERTH_METRICS_ADDRESS: '[::1]:9100',
    BERTH_METRICS_TOKEN: '0123456789abcdef',
  });
  assert.deepEqual(metrics, { address: { host: '::1', port: 9100 }, token: '0123456789abcdef' });
  for (const text of ['9100', ':9100', '::1:9100', '127.0.0.1', '127.0.0.1:70000'])
    assert.match(problem({ BERTH_METRICS_ADDRESS: text }), /BERTH_METRICS_ADDRESS/, text);
  const short = problem({ BERTH_METRICS_TOKEN: 'sesame' });
  assert.match(short, /BERTH_METRICS_TOKEN/);
  assert.doesNotMatch(short, /sesame/);
});
