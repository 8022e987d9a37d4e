/** HTTPS as clients meet it: real handshakes, with what is on the disk. */

import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { Agent, request } from 'node:https';
import { type AddressInfo, connect as connectPlain } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { type ConnectionOptions, connect } from 'node:tls';
import { openEdge } from '../../src/http/edge.ts';
import { ensureSelfSigned, selfSignedNames } from '../../src/http/self-signed.ts';
import { openServer, refuseUnparsed } from '../../src/http/server.ts';
import { type CertificateFiles, TlsIdentity } from '../../src/http/tls.ts';
import { claimPorts } from '../support/ports.ts';
import { firstAnswer } from '../support/raw-socket.ts';
import { runWell } from '../support/run.ts';
import { eventually } from '../support/waiting.ts';
import { type Served, serve } from './served.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-tls-'));
const live = { certFile: join(folder, 'cert.pem'), keyFile: join(folder, 'key.pem') };
const logged: string[] = [];
const log = {
  info: (_fields: object, message: string) => void logged.push(message),
  warn: (_fields: object, message: string) => void logged.push(message),
  error: (_fields: object, message: string) => void logged.push(message),
};

/** A pair of its own: the names say which. */
async function makePair(name: string): Promise<CertificateFiles> {
  const own = mkdtempSync(join(folder, 'pair-'));
  const names = selfSignedNames(name, '127.0.0.1');
  return ensureSelfSigned({ folder: own, names, nowMs: Date.now() });
}

const fingerprintOf = ({ certFile }: CertificateFiles) =>
  new X509Certificate(readFileSync(certFile)).fingerprint256;

function install({ certFile, keyFile }: CertificateFiles): void {
  copyFileSync(certFile, live.certFile);
  copyFileSync(keyFile, live.keyFile);
}

let served: Served;
let tls: TlsIdentity;
let first: CertificateFiles;
let second: CertificateFiles;
before(async () => {
  first = await makePair('first.example');
  second = await makePair('second.example');
  install(first);
  tls = new TlsIdentity(live, log);
  served = await serve(await claimPorts(1), (context) => ({ ...openEdge(context.log), tls }));
});
beforeEach(() => {
  install(first);
  tls.reload();
  logged.length = 0;
});
after(async () => {
  await served.close();
  tls.close();
  rmSync(folder, { recursive: true, force: true });
});

const port = () => Number(new URL(served.url).port);

/** What a new connection is shown. */
async function shownFingerprint(options: ConnectionOptions = {}): Promise<string> {
  const socket = connect({
    port: port(),
    host: '127.0.0.1',
    rejectUnauthorized: false,
    ...options,
  });
  try {
    await once(socket, 'secureConnect');
    return socket.getPeerX509Certificate()?.fingerprint256 ?? '';
  } finally {
    socket.destroy();
  }
}

function get(path: string, options: { ca: string; agent?: Agent }): Promise<number> {
  const settings = { ...options, host: 'localhost', port: port(), path, family: 4 };
  return new Promise((resolve, reject) => {
    const call = request(settings, (response) => {
      response.resume();
      response.once('end', () => resolve(response.statusCode ?? 0));
    });
    call.once('error', reject);
    call.end();
  });
}

test('whoever trusts the certificate is served, and nobody else', async () => {
  assert.match(served.url, /^https:/);
  assert.equal(await get('/healthz', { ca: readFileSync(first.certFile, 'utf8') }), 200);
  await assert.rejects(get('/healthz', { ca: readFileSync(second.certFile, 'utf8') }));
});

test('curl trusts it by --cacert, under every name that it is for', async () => {
  for (const host of ['localhost', '127.0.0.1', 'first.example']) {
    const target = `${host}:${port()}`;
    const resolveTo = ['--connect-to', `${target}:127.0.0.1:${port()}`];
    const words = ['-sS', '--cacert', first.certFile, ...resolveTo, `https://${target}/healthz`];
    const stdout = await runWell('curl', words);
    assert.equal(stdout, '{"status":"ok"}', host);
  }
});

test('the fast path and the routes answer over HTTPS, errors in the body of the contract', async () => {
  const ca = readFileSync(first.certFile, 'utf8');
  assert.equal(await get('/v1/snapshots/list', { ca }), 401);
  const headers = ['-H', `Authorization: Bearer ${await served.newToken()}`];
  const list = `https://127.0.0.1:${port()}/v1/snapshots/list`;
  for (const _ of [1, 2]) {
    const stdout = await runWell('curl', ['-sS', '--cacert', first.certFile, ...headers, list]);
    assert.equal(stdout, '[]');
  }
});

test('what is no HTTP gets the body of the contract inside the connection', async () => {
  const socket = connect({ port: port(), host: '127.0.0.1', rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  socket.write('nonsense\r\n\r\n');
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(Buffer.from(chunk));
  const answer = firstAnswer(Buffer.concat(chunks));
  assert.equal(answer?.status, 400);
  assert.match(answer?.text ?? '', /"invalid_request"/);
});

test('plain HTTP on the port of HTTPS is closed without a word, and nothing else suffers', async () => {
  const socket = connectPlain({ port: port(), host: '127.0.0.1' });
  socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(Buffer.from(chunk)));
  socket.on('error', () => undefined);
  await once(socket, 'close');
  assert.doesNotMatch(Buffer.concat(chunks).toString('latin1'), /HTTP\/1/);
  assert.deepEqual(logged, []);
  assert.equal(await shownFingerprint(), fingerprintOf(first));
});

test('a connection without a handshake is closed in time', async () => {
  const server = openServer(
    (_request, response) => response.end(),
    new TlsIdentity(first, log, 50),
  );
  server.on('clientError', refuseUnparsed).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connectPlain({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' });
  try {
    await once(socket, 'close', { signal: AbortSignal.timeout(20_000) });
  } finally {
    socket.destroy();
    server.close();
  }
});

test('TLS 1.2 is the oldest that is spoken, before and after a reload', async () => {
  const older = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'ALL:@SECLEVEL=0' } as const;
  const newer = { maxVersion: 'TLSv1.2' } as const;
  for (const pair of [first, second]) {
    install(pair);
    tls.reload();
    await assert.rejects(shownFingerprint(older), /protocol version|unsupported protocol/i);
    assert.equal(await shownFingerprint(newer), fingerprintOf(pair));
  }
});

test('a new pair is shown to new connections, and open ones go on', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ca = readFileSync(first.certFile, 'utf8');
  assert.equal(await get('/healthz', { ca, agent }), 200);
  install(second);
  tls.reload();
  assert.equal(await shownFingerprint(), fingerprintOf(second));
  assert.equal(await get('/healthz', { ca, agent }), 200, 'the connection from before');
  agent.destroy();
  assert.equal(tls.fingerprint, fingerprintOf(second));
  assert.deepEqual(logged, ['certificate reloaded']);
});

const breakages: Readonly<Record<string, () => void>> = {
  'the certificate alone': () => copyFileSync(second.certFile, live.certFile),
  'the key alone': () => copyFileSync(second.keyFile, live.keyFile),
  'half a certificate': () =>
    writeFileSync(live.certFile, readFileSync(second.certFile, 'utf8').slice(0, 300)),
  'half a chain': () => {
    const whole = readFileSync(first.certFile, 'utf8');
    writeFileSync(live.certFile, whole + readFileSync(second.certFile, 'utf8').slice(0, 300));
  },
  'the first word of a chain': () => {
    const whole = readFileSync(first.certFile, 'utf8');
    writeFileSync(live.certFile, whole + readFileSync(second.certFile, 'utf8').slice(0, 16));
  },
  'an empty key': () => writeFileSync(live.keyFile, ''),
  'no key at all': () => unlinkSync(live.keyFile),
};
for (const [what, breakIt] of Object.entries(breakages)) {
  test(`with ${what} on the disk the old pair stays, and the log says so`, async () => {
    breakIt();
    tls.reload();
    assert.deepEqual(logged, ['certificate not reloaded']);
    assert.equal(await shownFingerprint(), fingerprintOf(first));
    install(second);
    tls.reload();
    assert.equal(await shownFingerprint(), fingerprintOf(second), 'once it is whole it is taken');
  });
}

const showsUp = (pair: CertificateFiles) =>
  eventually('the new certificate', 20_000, async () =>
    (await shownFingerprint()) === fingerprintOf(pair) ? true : undefined,
  );

test('a change of the files is seen, in place, by renaming and through links', async () => {
  tls.watch(20);
  try {
    install(second);
    await showsUp(second);
    const fresh = await makePair('third.example');
    renameSync(fresh.keyFile, live.keyFile);
    renameSync(fresh.certFile, live.certFile);
    await eventually('the renamed one', 20_000, async () =>
      (await shownFingerprint()) === fingerprintOf(live) ? true : undefined,
    );
    for (const [link, target] of [
      [live.certFile, first.certFile],
      [live.keyFile, first.keyFile],
    ] as const) {
      symlinkSync(target, `${link}.link`);
      renameSync(`${link}.link`, link);
    }
    await showsUp(first);
  } finally {
    tls.close();
    for (const file of Object.values(live)) unlinkSync(file);
  }
});

test('a certificate for trials is made once, and its key is for its owner alone', async () => {
  const own = mkdtempSync(join(folder, 'own-'));
  const options = { folder: own, names: ['localhost', '::1', 'under_score'], nowMs: Date.now() };
  const files = await ensureSelfSigned(options);
  assert.equal(statSync(files.keyFile).mode & 0o777, 0o600);
  const certificate = new X509Certificate(readFileSync(files.certFile));
  assert.equal(certificate.ca, false);
  assert.ok(certificate.checkIP('::1'));
  const fingerprint = fingerprintOf(files);
  await ensureSelfSigned(options);
  assert.equal(fingerprintOf(files), fingerprint);
});

test('it is made anew near its end, for a new name, and when it is broken', async () => {
  const own = mkdtempSync(join(folder, 'own-'));
  const dayMs = 86_400_000;
  const nowMs = Date.now();
  const names = ['localhost'];
  const files = await ensureSelfSigned({ folder: own, names, nowMs });
  const seen = [fingerprintOf(files)];
  const again = async (options: { names?: string[]; nowMs?: number }) => {
    await ensureSelfSigned({ folder: own, names, nowMs, ...options });
    seen.push(fingerprintOf(files));
    // Whatever is made can be used.
    assert.equal(new TlsIdentity(files, log).fingerprint, seen.at(-1));
  };
  await again({ nowMs: nowMs + 334 * dayMs });
  assert.equal(seen[1], seen[0], 'a month and a day before its end it stays');
  await again({ nowMs: nowMs + 336 * dayMs });
  await again({ names: ['localhost', 'new.example'] });
  unlinkSync(files.keyFile);
  await again({ names: ['localhost', 'new.example'] });
  writeFileSync(files.certFile, 'broken');
  await again({ names: ['localhost', 'new.example'] });
  assert.equal(new Set(seen).size, 5);
});

test('a start with files that cannot be used says which, and why', async () => {
  const own = mkdtempSync(join(folder, 'bad-'));
  const encrypted = join(own, 'encrypted.pem');
  const passphrase = ['-passout', 'pass:secret', '-aes256'];
  await runWell('openssl', ['pkey', '-in', first.keyFile, '-out', encrypted, ...passphrase]);
  const open = (files: Partial<CertificateFiles>) => () =>
    new TlsIdentity({ ...first, ...files }, log);
  assert.throws(open({ keyFile: encrypted }), /encrypted\.pem is encrypted/);
  assert.throws(open({ keyFile: join(own, 'none') }), /none cannot be read \(ENOENT\)/);
  assert.throws(open({ certFile: own }), /cannot be read \(EISDIR\)/);
  assert.throws(open({ keyFile: second.keyFile }), /does not belong to the certificate/);
  assert.throws(open({ certFile: first.keyFile }), /holds no certificate/);
  assert.throws(open({ keyFile: first.certFile }), /holds no private key/);
  chmodSync(encrypted, 0o600);
});
