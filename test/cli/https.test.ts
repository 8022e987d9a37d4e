/** `berth serve` over HTTPS, as an operator starts it, and `berth` as its client. */

import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { copyFileSync, readFileSync, statSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect } from 'node:tls';
import { ensureSelfSigned } from '../../src/http/self-signed.ts';
import { newTenantToken } from '../support/house.ts';
import { runWell } from '../support/run.ts';
import { Service } from '../support/service.ts';
import { eventually } from '../support/waiting.ts';
import { berth, fail, makeHome, succeed } from './berth.ts';

let service: Service;
let token: string;
before(async () => {
  service = await Service.prepare({ sshPorts: 1, environment: { BERTH_TLS_SELF_SIGNED: 'true' } });
  await service.start();
  token = await newTenantToken(service, 'acme');
});
after(() => service.dispose());

const certFile = () => join(service.dataFolder, 'tls-cert.pem');

test('the start says how to trust the certificate, and curl then does', async () => {
  assert.match(service.baseUrl, /^https:\/\/127\.0\.0\.1:\d+$/);
  const output = await readFile(service.outputFile, 'utf8');
  const { fingerprint256 } = new X509Certificate(readFileSync(certFile()));
  assert.ok(output.includes(`SHA-256 fingerprint ${fingerprint256}`), output);
  assert.ok(output.includes(`--cacert ${certFile()} ${service.baseUrl}/healthz`), output);
  assert.equal(statSync(join(service.dataFolder, 'tls-key.pem')).mode & 0o777, 0o600);
  const healthz = `${service.baseUrl}/healthz`;
  assert.equal(await runWell('curl', ['-sS', '--cacert', certFile(), healthz]), '{"status":"ok"}');
});

test('the next start shows the same certificate', async () => {
  const earlier = readFileSync(certFile(), 'utf8');
  await service.restart();
  assert.equal(readFileSync(certFile(), 'utf8'), earlier);
});

test('the CLI trusts it by --ca, keeps that with the login, and by BERTH_CA', async () => {
  const { env, remove } = await makeHome();
  const withToken = { ...env, BERTH_TOKEN: token };
  const login = ['login', '--url', service.baseUrl];
  try {
    await fail(withToken, login, 5, /certificate is not trusted here.*--ca/s);
    await fail(withToken, [...login, '--ca', '/nowhere.pem'], 2, /\/nowhere\.pem cannot be read/);
    const key = join(service.dataFolder, 'tls-key.pem');
    await fail(withToken, [...login, '--ca', key], 2, /holds no certificate/);
    await succeed(withToken, [...login, '--ca', certFile()]);
    await succeed(env, ['snapshot', 'list']);
    for (const command of ['specs', 'templates']) await succeed(env, [command]);
    const elsewhere = { ...withToken, BERTH_URL: service.baseUrl, XDG_CONFIG_HOME: '/nowhere' };
    await fail(elsewhere, ['snapshot', 'list'], 5, /not trusted/);
    await succeed({ ...elsewhere, BERTH_CA: certFile() }, ['snapshot', 'list']);
    await succeed({ ...elsewhere, BERTH_CA: certFile() }, ['specs']);
    await succeed({ ...elsewhere, NODE_EXTRA_CA_CERTS: certFile() }, ['snapshot', 'list']);
  } finally {
    await remove();
  }
});

async function shownFingerprint(baseUrl: string): Promise<string> {
  const port = Number(new URL(baseUrl).port);
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
      resolve(socket.getPeerX509Certificate()?.fingerprint256 ?? '');
      socket.destroy();
    });
    socket.once('error', reject);
  });
}

test('a pair of files is served, and read again on SIGHUP; a flag sets what a setting does', async () => {
  const pairs = await Promise.all(
    ['one', 'two'].map(async (name) => {
      const folder = join(service.folder, name);
      await mkdir(folder);
      return ensureSelfSigned({ folder, names: ['localhost', name], nowMs: Date.now() });
    }),
  );
  const live = { cert: join(service.folder, 'cert.pem'), key: join(service.folder, 'key.pem') };
  const install = (index: number) => {
    copyFileSync(pairs[index]?.certFile ?? '', live.cert);
    copyFileSync(pairs[index]?.keyFile ?? '', live.key);
    return new X509Certificate(readFileSync(live.cert)).fingerprint256;
  };
  const first = install(0);
  await service.stop();
  await service.start({
    BERTH_TLS_SELF_SIGNED: 'false',
    BERTH_TLS_CERT: live.cert,
    BERTH_TLS_KEY: live.key,
  });
  assert.equal(await shownFingerprint(service.baseUrl), first);
  const second = install(1);
  process.kill(service.pid ?? 0, 'SIGHUP');
  await eventually('the second certificate', 20_000, async () =>
    (await shownFingerprint(service.baseUrl)) === second ? true : undefined,
  );
  await service.stop();
  await service.start();
});

test('a start that cannot speak HTTPS says why and ends', async () => {
  const { env, home, remove } = await makeHome();
  const settings = { ...env, BERTH_DATA: join(home, 'data'), BERTH_PORT: '0' };
  try {
    await fail(settings, ['serve', '--tls-cert', certFile()], 2, /BERTH_TLS_KEY is not/);
    const pair = ['--tls-cert', certFile(), '--tls-key', join(home, 'none.pem')];
    await fail(settings, ['serve', ...pair], 1, /none\.pem cannot be read \(ENOENT\)/);
    await fail(settings, ['serve', ...pair, '--tls-self-signed'], 2, /goes without/);
  } finally {
    await remove();
  }
});

test('the help of serve names every flag', async () => {
  const { env, remove } = await makeHome();
  const { stdout } = await berth(env, ['serve', '--help']);
  for (const flag of [
    ...['--data', '--host', '--port', '--tls-cert', '--tls-key', '--tls-self-signed'],
    ...['--trusted-proxies', '--rate-limit-token', '--rate-limit-address'],
    ...['--rate-limit-failed-auth', '--metrics-address', 'BERTH_METRICS_TOKEN'],
  ])
    assert.ok(stdout.includes(flag), flag);
  await remove();
});
