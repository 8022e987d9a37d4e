import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import {
  findSavedKeys,
  fingerprintOfPrivateKey,
  isUsableKeyName,
  nameSavedKey,
  reserveKeyFile,
  reserveSavedKey,
} from '../../src/cli/key-files.ts';

const uuid = '6f7cbb38-8b9b-4c0e-9d38-0f2f5f5f0a01';
let directory: string;

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'berth-keys-'));
});
after(() => rm(directory, { recursive: true }));

const modeOf = async (path: string) => (await stat(path)).mode & 0o777;

test('a reserved file is there at once, private, and gone after discard', async () => {
  const file = await reserveKeyFile(join(directory, 'discarded'));
  assert.equal(await modeOf(file.path), 0o600);
  await file.discard();
  await assert.rejects(stat(file.path), { code: 'ENOENT' });
});

test('a key is saved whole, and nothing is overwritten', async () => {
  const path = join(directory, 'saved');
  await (await reserveKeyFile(path)).save('the key\n');
  assert.equal(await readFile(path, 'utf8'), 'the key\n');
  await assert.rejects(reserveKeyFile(path), /never overwritten/);
  assert.equal(await readFile(path, 'utf8'), 'the key\n');
});

test('a folder that is not there is reported before anything is asked of the service', async () => {
  await assert.rejects(reserveKeyFile(join(directory, 'none', 'key')), /no such file or directory/);
});

test('saved keys of one instance are numbered', async () => {
  const keys = join(directory, 'numbered');
  for (const end of [undefined, undefined, 2_000_000_000]) {
    await (await reserveSavedKey(keys, uuid, end)).save('x');
  }
  assert.deepEqual((await readdir(keys)).sort(), [uuid, `${uuid}-2`, `${uuid}.until-2000000000`]);
  assert.equal(await modeOf(keys), 0o700);
});

test('the key of a new instance gets its name, unless that is taken', async () => {
  const keys = join(directory, 'naming');
  const first = await reserveSavedKey(keys, 'new');
  assert.equal(await nameSavedKey(first.path, uuid), join(keys, uuid));
  const second = await reserveSavedKey(keys, 'new');
  assert.equal(await nameSavedKey(second.path, uuid), second.path);
  assert.deepEqual((await readdir(keys)).sort(), [uuid, 'new'].sort());
  await first.discard();
  await second.discard();
});

test('names of keys that have ended, and of other things, are not usable', () => {
  const now = 1000;
  for (const ending of ['', '-2', '-13', '.until-1001', '-2.until-1001']) {
    assert.ok(isUsableKeyName(uuid + ending, uuid, now), ending);
  }
  for (const ending of ['.until-1000', '-2.until-999', '.pub', '-x', 'a']) {
    assert.ok(!isUsableKeyName(uuid + ending, uuid, now), ending);
  }
  assert.ok(!isUsableKeyName('known_hosts', uuid, now));
});

for (const type of ['ed25519', 'ecdsa', 'rsa']) {
  test(`the fingerprint of a private ${type} key is the one of ssh-keygen`, async () => {
    const keys = join(directory, type);
    const { path, discard } = await reserveSavedKey(keys, uuid);
    await discard();
    execFileSync('ssh-keygen', ['-q', '-t', type, '-N', '', '-f', path]);
    const expected = execFileSync('ssh-keygen', ['-l', '-f', path], { encoding: 'utf8' }).split(
      ' ',
    )[1];
    assert.equal(fingerprintOfPrivateKey(await readFile(path, 'utf8')), expected);
    assert.deepEqual(await findSavedKeys(keys, uuid, 0), [{ path, fingerprint: expected }]);
  });
}

test('what is not a private key has no fingerprint', async () => {
  const wrap = (bytes: Buffer) =>
    `-----BEGIN OPENSSH PRIVATE KEY-----\n${bytes.toString('base64')}\n-----END OPENSSH PRIVATE KEY-----\n`;
  const magic = Buffer.from('openssh-key-v1\0');
  const texts = [
    '',
    'x',
    wrap(Buffer.alloc(0)),
    wrap(magic),
    wrap(Buffer.concat([magic, Buffer.alloc(9, 0xff)])),
  ];
  for (const text of texts) assert.equal(fingerprintOfPrivateKey(text), undefined);
  const keys = join(directory, 'broken');
  await (await reserveSavedKey(keys, uuid)).save('half a k');
  await writeFile(join(keys, 'other'), '');
  assert.deepEqual(await findSavedKeys(keys, uuid, 0), []);
  assert.deepEqual(await findSavedKeys(join(directory, 'nowhere'), uuid, 0), []);
});
