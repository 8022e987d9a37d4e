/**
 * Our reading of keys against OpenSSH's own, on thousands of sound and damaged lines. `ssh-keygen -l`
 * prints one fingerprint for each key line of a file and passes over what it cannot read, so that one
 * process judges a whole batch. To repeat a run: FUZZ_SEED=<the printed number>.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { listKeys } from '../../src/domain/authorized-keys.ts';
import { AppError } from '../../src/domain/errors.ts';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import { parsePublicKey, type SshPublicKey, splitBlob } from '../../src/domain/ssh-public-key.ts';
import { Random, seedFrom } from '../support/random.ts';

const SEED = seedFrom('FUZZ_SEED');
const MANGLED_LINES = 6000;
const random = new Random(SEED);

const KEY_KINDS = [
  ['ed25519', 256],
  ['rsa', 2048],
  ['rsa', 3072],
  ['ecdsa', 256],
  ['ecdsa', 384],
  ['ecdsa', 521],
] as const;

let folder = '';
let soundLines: string[] = [];

const keygen = (...options: string[]) =>
  execFileSync('ssh-keygen', options, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });

/** The line of a new key, with the bits and comment as given. */
function makeKey(type: string, bits: number): string {
  const path = join(folder, `${type}-${bits}`);
  keygen('-q', '-t', type, '-b', `${bits}`, '-N', '', '-C', `${type} ${bits}`, '-f', path);
  return readFileSync(`${path}.pub`, 'utf8');
}

/** What ssh-keygen makes of each line that it can read, in order. */
function fingerprints(content: string | Buffer): string[] {
  const path = join(folder, 'lines');
  // A first line of our own: ssh-keygen takes the file for a private key when that one says PRIVATE KEY.
  writeFileSync(path, Buffer.concat([Buffer.from('#\n'), Buffer.from(content)]));
  try {
    const printed = keygen('-l', '-f', path).trimEnd().split('\n');
    return printed.map((line) => line.split(' ')[1] ?? '');
  } catch {
    return [];
  }
}

function sshString(bytes: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

function lineOf(type: string, fields: readonly Buffer[]): string {
  const blob = Buffer.concat([Buffer.from(type), ...fields].map(sshString));
  return `${type} ${blob.toString('base64')} made by hand`;
}

/** No security key is at hand, but the same points with an application behind them have its form. */
function securityKeyLines(lines: readonly string[]): string[] {
  return lines.map(parsePublicKey).flatMap(({ type, blob }) => {
    const fields = [...(splitBlob(blob) ?? []).slice(1), Buffer.from('ssh:')];
    const supported = type === 'ssh-ed25519' || type === 'ecdsa-sha2-nistp256';
    return supported ? [lineOf(`sk-${type}@openssh.com`, fields)] : [];
  });
}

function parsed(text: string): SshPublicKey | undefined {
  try {
    return parsePublicKey(text);
  } catch (error) {
    assert.ok(error instanceof AppError, `seed ${SEED}: ${error}`);
    return undefined;
  }
}

function flipBits(blob: Buffer): Buffer {
  const changed = Buffer.from(blob);
  for (let count = 1 + random.below(3); count > 0; count -= 1) {
    const index = random.below(changed.length);
    changed.writeUInt8(changed.readUInt8(index) ^ (1 << random.below(8)), index);
  }
  return changed;
}

/** Flips bits in one whole field, with its length kept: the damage that the structure does not show. */
function flipInField(blob: Buffer): Buffer {
  const fields = splitBlob(blob) ?? [];
  const chosen = 1 + random.below(fields.length - 1);
  return Buffer.concat(
    fields.map((field, index) => sshString(index === chosen ? flipBits(field) : field)),
  );
}

function resizeField(blob: Buffer): Buffer {
  const fields = splitBlob(blob) ?? [];
  const chosen = random.below(fields.length);
  const resized = (field: Buffer) =>
    random.chance(0.5)
      ? field.subarray(random.below(2), field.length - random.below(3))
      : Buffer.concat([Buffer.alloc(random.below(3)), field, Buffer.alloc(random.below(3), 1)]);
  return Buffer.concat(
    fields.map((field, index) => sshString(index === chosen ? resized(field) : field)),
  );
}

const BLOB_MANGLERS: readonly ((blob: Buffer) => Buffer)[] = [
  flipBits,
  flipInField,
  flipInField,
  resizeField,
  (blob) => blob.subarray(0, random.below(blob.length)),
  (blob) => Buffer.concat([blob, Buffer.alloc(1 + random.below(40), random.below(256))]),
  (blob) => Buffer.concat([blob, sshString(Buffer.alloc(random.below(9)))]),
  (blob) => Buffer.concat((splitBlob(blob) ?? []).slice(0, -1).map(sshString)),
];

/** Text put at a random place. */
function insert(line: string, text: string): string {
  const index = random.below(line.length + 1);
  return line.slice(0, index) + text + line.slice(index);
}

const LINE_MANGLERS: readonly ((line: string) => string)[] = [
  (line) => insert(line, random.pick([' ', '\t', '\r', '=', '-', '/', '#', '"', '\0', '\u00a0'])),
  (line) => line.slice(0, random.below(line.length)),
  (line) => line.slice(random.below(30)),
  (line) => line.replace(/^[^ ]+/, random.pick(soundLines).split(' ')[0] ?? ''),
  (line) => line.replace(/^([^ ]+) /, '$1   '),
  (line) => `${random.pick(['no-pty', 'command="a b"', 'host.example', '2048', '# '])} ${line}`,
  (line) => `${line} ${random.text(random.below(60), ' abc"\\#,=é☕\u202e')}`,
  (line) => `${line.split(' ').slice(0, 2).join(' ')}${random.pick(['', ' ', '  x'])}`,
  (line) => `${random.pick([' ', '\t', '\r\n', ''])}${line}${random.pick(['\r', ' ', '\r\n'])}`,
];

function mangled(): string {
  const line = random.pick(soundLines);
  if (random.chance(0.4)) return random.pick(LINE_MANGLERS)(line);
  const [type = '', base64 = ''] = line.split(' ');
  const blob = random.pick(BLOB_MANGLERS)(Buffer.from(base64, 'base64'));
  return `${type} ${blob.toString('base64')} ${random.text(5)}`;
}

const missing = spawnSync('ssh-keygen', ['-?']).error !== undefined;
const skip = missing && 'SKIPPED: ssh-keygen is not installed (Debian: openssh-client).';

describe(`ssh-keygen, seed ${SEED}`, { skip }, () => {
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'berth-keygen-'));
    const made = KEY_KINDS.map(([type, bits]) => makeKey(type, bits).trimEnd());
    soundLines = [...made, ...securityKeyLines(made), generateKeyPair('berth').publicKey.line];
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  test('agrees on a key of every accepted type', () => {
    const expected = soundLines.map((line) => parsePublicKey(line).fingerprint);
    assert.deepEqual(fingerprints(soundLines.join('\n')), expected);
  });

  test('accepts, with the same fingerprint, every mangled line that we accept', () => {
    const accepted = Array.from({ length: MANGLED_LINES }, mangled).flatMap(
      (text) => parsed(text) ?? [],
    );
    const printed = fingerprints(accepted.map(({ line }) => line).join('\n'));
    assert.deepEqual(
      printed,
      accepted.map(({ fingerprint }) => fingerprint),
      `seed ${SEED}`,
    );
    assert.ok(accepted.length > MANGLED_LINES / 10, `only ${accepted.length} were accepted`);
    assert.ok(accepted.length < MANGLED_LINES / 2, `as many as ${accepted.length} were accepted`);
  });

  test('refuses, as we do, an ECDSA key with a damaged curve name or point', () => {
    const keys = soundLines.filter((line) => line.startsWith('ecdsa')).map(parsePublicKey);
    const lines = Array.from({ length: 500 }, () => {
      const { type, blob } = random.pick(keys);
      const damaged = flipInField(blob);
      // Two flips of one bit leave the key as it was.
      return damaged.equals(blob) ? '' : `${type} ${damaged.toString('base64')}`;
    });
    assert.deepEqual(lines.filter(parsed), [], `seed ${SEED}`);
    assert.deepEqual(fingerprints(lines.join('\n')), [], `seed ${SEED}`);
  });

  test('reads the same keys from hand-written authorized_keys', () => {
    // One blank behind options: sshd passes over any number there, ssh-keygen over one.
    const options = ['', 'no-pty ', ' \t', 'command="a \\"b\\" c",no-pty ', '# ', 'a b ', '"x '];
    const files = Array.from({ length: 20 }, () => {
      const lines = Array.from(
        { length: 20 },
        () => `${random.pick(options)}${random.pick(soundLines)}`,
      );
      return lines.join(random.pick(['\n', '\r\n', '\n\n', ' \n']));
    });
    for (const file of files) {
      const ours = listKeys(Buffer.from(file)).map(({ fingerprint }) => fingerprint);
      assert.deepEqual(ours, fingerprints(file), `seed ${SEED}`);
    }
  });

  test('refused kinds of real keys: short RSA, DSA, certificates', () => {
    const path = join(folder, 'ed25519-256');
    keygen('-q', '-s', path, '-I', 'test', '-n', 'ubuntu', `${path}.pub`);
    const certificate = readFileSync(`${path}-cert.pub`, 'utf8');
    assert.throws(() => parsePublicKey(certificate), /certificate/);
    assert.throws(() => parsePublicKey(makeKey('rsa', 1024)), /2048/);
  });

  test('every form in which a key is kept but its one line is refused', () => {
    for (const [type, bits] of KEY_KINDS) {
      const path = join(folder, `${type}-${bits}`);
      assert.throws(() => parsePublicKey(readFileSync(path, 'utf8')), /exposed/);
      const forms = type === 'ed25519' ? ['RFC4716'] : ['RFC4716', 'PKCS8', 'PEM'];
      for (const form of forms) {
        const text = keygen('-e', '-m', form, '-f', `${path}.pub`);
        assert.throws(() => parsePublicKey(text), /PEM or RFC 4716/, form);
      }
    }
  });

  test('derives our public half from our private half', () => {
    for (const comment of ['', 'berth', 'Zoë on a "laptop" ☕', 'x'.repeat(200)]) {
      const { publicKey, privateKey } = generateKeyPair(comment);
      const path = join(folder, 'private');
      writeFileSync(path, privateKey, { mode: 0o600 });
      assert.equal(keygen('-y', '-f', path).trimEnd(), publicKey.line);
      rmSync(path);
    }
  });
});
