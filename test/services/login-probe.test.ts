/** The proof of a login, against the sshd of a real instance. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import ssh2 from 'ssh2';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import { parsePublicKey } from '../../src/domain/ssh-public-key.ts';
import type { Endpoint } from '../../src/engines/engine.ts';
import { proveLogin } from '../../src/services/login-probe.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

let shop: Workshop;
let uuid: string;
let endpoint: Endpoint;
const folder = mkdtempSync(join(tmpdir(), 'berth-probe-'));

before(async () => {
  shop = await openWorkshop({ from: 28_400, to: 28_499 });
  uuid = (await shop.instances.create(shop.actor, smallest)).uuid;
  await shop.settle();
  const { row } = await shop.instances.get(shop.actor, uuid);
  endpoint = { ip: row.ip ?? '', port: row.port ?? 0 };
});
after(async () => {
  await shop.close();
  rmSync(folder, { recursive: true, force: true });
});

function makeKey(type: string, bits: string): string {
  const path = join(folder, `${type}-${bits}`);
  execFileSync('ssh-keygen', ['-q', '-t', type, '-b', bits, '-N', '', '-f', path]);
  return readFileSync(`${path}.pub`, 'utf8');
}

/** A security key's line (PROTOCOL.u2f) around an ordinary key's point. */
function securityKey(line: string): string {
  const { type, blob } = parsePublicKey(line);
  const name =
    type === 'ssh-ed25519' ? 'sk-ssh-ed25519@openssh.com' : 'sk-ecdsa-sha2-nistp256@openssh.com';
  const rest = blob.subarray(4 + type.length);
  const body = Buffer.concat([field(name), rest, field('ssh:')]);
  return `${name} ${body.toString('base64')}`;
}

function field(text: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(text.length);
  return Buffer.concat([length, Buffer.from(text)]);
}

const lines: readonly (readonly [string, () => string])[] = [
  ['Ed25519', () => generateKeyPair('x').publicKey.line],
  ['RSA 2048', () => makeKey('rsa', '2048')],
  ['ECDSA P-256', () => makeKey('ecdsa', '256')],
  ['ECDSA P-384', () => makeKey('ecdsa', '384')],
  ['ECDSA P-521', () => makeKey('ecdsa', '521')],
  ['a security key, Ed25519', () => securityKey(generateKeyPair('x').publicKey.line)],
  ['a security key, ECDSA', () => securityKey(readFileSync(join(folder, 'ecdsa-256.pub'), 'utf8'))],
];

for (const [name, make] of lines) {
  test(`${name}: refused before it is added, proved after`, async () => {
    const key = parsePublicKey(make());
    await assert.rejects(proveLogin(endpoint, key), { kind: 'login_refused' });
    const added = await shop.keys.add(shop.actor, uuid, { publicKey: key.line, verify: true });
    assert.match(added.message, /was added/);
  });
}

test('a key that sshd refuses is taken out again', async () => {
  const before = await shop.engine.readKeys(uuid);
  const key = generateKeyPair('expired').publicKey;
  await shop.engine.addKey(uuid, { publicKey: key.line, expiresAt: new Date(Date.now() - 60_000) });
  await assert.rejects(proveLogin(endpoint, key), { kind: 'login_refused' });
  await shop.engine.removeKey(uuid, { kind: 'key', publicKey: key.line });
  assert.equal(await shop.engine.readKeys(uuid), before);
});

test('a server that accepts every key proves nothing', async () => {
  const hostKey = generateKeyPair('host').privateKey;
  const server = new ssh2.Server({ hostKeys: [hostKey] }, (client) => {
    client.on('authentication', (context) => context.accept());
    client.on('error', () => {});
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', () => done()));
  const { port } = server.address() as AddressInfo;
  const key = generateKeyPair('any').publicKey;
  await assert.rejects(proveLogin({ ip: '127.0.0.1', port }, key), {
    kind: 'login_refused',
    message: /any key/,
  });
  server.close();
});

test('a server that is not there is an error that says so, in time', async () => {
  const key = generateKeyPair('nobody').publicKey;
  await assert.rejects(proveLogin({ ip: '127.0.0.1', port: 9 }, key), {
    kind: 'login_refused',
    message: /did not answer/,
  });
});
