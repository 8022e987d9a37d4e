import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { AppError } from '../../src/domain/errors.ts';
import { fingerprintOf, parsePublicKey } from '../../src/domain/ssh-public-key.ts';

/** Made by ssh-keygen, with the fingerprint that `ssh-keygen -l` printed for it. */
const KNOWN_LINE =
  'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIw4+ZsKBlTfVGz25nx4rtD+F8LsRhadrSf3o5rzsMCo berth@example';
const KNOWN_FINGERPRINT = 'SHA256:+OnoTY/RdMxAMzYMKbfzVlqg9qI/Z+L2pmEu6g0Xq+g';

/** Stands in every refused text; no message may repeat it. */
const MARKER = 'text-of-the-caller';

function sshString(value: string | Buffer): Buffer {
  const bytes = Buffer.from(value);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** A line whose blob holds `innerType` and the fields, whatever they are. */
function lineOf(type: string, fields: readonly (string | Buffer)[], innerType = type): string {
  const blob = Buffer.concat([innerType, ...fields].map(sshString));
  return `${type} ${blob.toString('base64')} ${MARKER}`;
}

const bytesOf = (base64url: string | undefined) => Buffer.from(base64url ?? '', 'base64url');

const jwkOf = ({ publicKey }: { publicKey: KeyObject }) => publicKey.export({ format: 'jwk' });
const join = (...parts: (number | Buffer)[]) =>
  Buffer.concat(parts.map((part) => (typeof part === 'number' ? Buffer.from([part]) : part)));

function ecPoint(namedCurve: string): Buffer {
  const { x, y } = jwkOf(generateKeyPairSync('ec', { namedCurve }));
  return join(4, bytesOf(x), bytesOf(y));
}

/** As mpints: a modulus of these lengths has its first bit set. */
function rsaFields(modulusLength: number): { exponent: Buffer; modulus: Buffer } {
  const { e, n } = jwkOf(generateKeyPairSync('rsa', { modulusLength }));
  return { exponent: bytesOf(e), modulus: join(0, bytesOf(n)) };
}

/** The sound 2048-bit key with one number or both replaced. */
const rsaLine = (fields: { exponent?: Buffer; modulus?: Buffer }) =>
  lineOf('ssh-rsa', Object.values({ ...RSA, ...fields }));

/** A little-endian Ed25519 encoding of y. */
function encodeY(y: bigint): Buffer {
  return Buffer.from(y.toString(16).padStart(64, '0'), 'hex').reverse();
}

const POINT = bytesOf(jwkOf(generateKeyPairSync('ed25519')).x);
const P256 = ecPoint('P-256');
const OFF_CURVE = join(P256.subarray(0, 64), P256.readUInt8(64) ^ 1);
const COMPRESSED = join(2 + (P256.readUInt8(64) & 1), P256.subarray(1, 33));
const RSA = rsaFields(2048);
const LONG_RSA = { exponent: Buffer.alloc(9, 0x7f), modulus: Buffer.alloc(400, 0x7f) };
const SK_ED25519 = 'sk-ssh-ed25519@openssh.com';
const SK_ECDSA = 'sk-ecdsa-sha2-nistp256@openssh.com';
const ED25519 = lineOf('ssh-ed25519', [POINT]);
const BASE64 = ED25519.split(' ')[1] ?? '';
const PRIME = 2n ** 255n - 19n;

const ACCEPTED: Readonly<Record<string, string>> = {
  'ssh-ed25519': ED25519,
  'ecdsa-sha2-nistp256': lineOf('ecdsa-sha2-nistp256', ['nistp256', P256]),
  'ecdsa-sha2-nistp384': lineOf('ecdsa-sha2-nistp384', ['nistp384', ecPoint('P-384')]),
  'ecdsa-sha2-nistp521': lineOf('ecdsa-sha2-nistp521', ['nistp521', ecPoint('P-521')]),
  'ssh-rsa': rsaLine({}),
  [SK_ED25519]: lineOf(SK_ED25519, [POINT, 'ssh:']),
  [SK_ECDSA]: lineOf(SK_ECDSA, ['nistp256', P256, 'ssh:berth']),
};

function refusal(text: string): string {
  try {
    parsePublicKey(text);
  } catch (error) {
    assert.ok(error instanceof AppError, String(error));
    assert.equal(error.kind, 'invalid_request');
    assert.equal(error.detail, undefined);
    return error.message;
  }
  assert.fail('The text was accepted.');
}

for (const [type, line] of Object.entries(ACCEPTED)) {
  test(`accepts ${type}`, () => {
    const key = parsePublicKey(line);
    assert.deepEqual([key.type, key.comment, key.line], [type, MARKER, line]);
    assert.equal(`${type} ${key.base64} ${MARKER}`, line);
    assert.deepEqual(key.blob, Buffer.from(key.base64, 'base64'));
    assert.equal(key.fingerprint, fingerprintOf(key.blob));
  });
}

test('the fingerprint is the one that ssh-keygen prints', () => {
  assert.equal(parsePublicKey(KNOWN_LINE).fingerprint, KNOWN_FINGERPRINT);
});

test('surrounding white space and a trailing CR are trimmed, the rest is kept exactly', () => {
  const line = `ssh-ed25519 ${BASE64} Zoë  O'Brien, "laptop" # 2 ☕`;
  for (const text of [line, `${line}\r`, `${line}\r\n`, ` \t\n${line} \t\r\n\n`]) {
    const key = parsePublicKey(text);
    assert.equal(key.line, line);
    assert.equal(key.comment, `Zoë  O'Brien, "laptop" # 2 ☕`);
  }
  assert.equal(parsePublicKey(`ssh-ed25519 ${BASE64}`).comment, '');
  assert.equal(parsePublicKey(`ssh-ed25519   ${BASE64}  a b`).comment, 'a b');
  assert.equal(parsePublicKey(`ssh-ed25519 ${BASE64} my PRIVATE KEY`).comment, 'my PRIVATE KEY');
});

const PRIVATE_TEXTS = [
  `-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n${MARKER}\n-----END OPENSSH PRIVATE KEY-----\n`,
  `-----BEGIN RSA PRIVATE KEY-----\r\nMII\r\n-----END RSA PRIVATE KEY-----`,
  '-----BEGIN PRIVATE KEY-----\nMC4\n-----END PRIVATE KEY-----',
  '-----BEGIN ENCRYPTED PRIVATE KEY-----\nMC4',
  '---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----',
  'PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n',
  `${ED25519}\nPrivate-Lines: 1\n${MARKER}`,
  'SSH PRIVATE KEY FILE FORMAT 1.1\n',
  `\ufeff  junk\n${ED25519}\n-----BEGIN OPENSSH PRIVATE KEY-----\n${MARKER}`,
  [...'-----BEGIN OPENSSH PRIVATE KEY-----'].join('\0'),
  `b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ${MARKER}`,
  'MC4CAQAwBQYDK2VwBCIEIAAA',
  'MIIEpAIBAAKCAQEA7',
  'MIIEvQIBADANBgkqhkiG9w0B',
];

test('a private key of any form is called exposed', () => {
  for (const text of PRIVATE_TEXTS) {
    const message = refusal(text);
    assert.match(message, /private key.*exposed.*\.pub/);
    assert.ok(!message.includes(MARKER));
  }
});

test('a private key made here is recognized in every export format', () => {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  for (const type of ['pkcs8', 'sec1'] as const) {
    const pem = privateKey.export({ format: 'pem', type });
    assert.match(refusal(pem.toString()), /exposed/);
    assert.match(refusal(pem.toString().split('\n').slice(1, -2).join('\n')), /exposed/);
  }
});

const REFUSED: readonly [name: string, text: string, message: RegExp][] = [
  ['nothing', '', /is empty/],
  ['white space', ' \t\r\n', /is empty/],
  ['a byte order mark', `\ufeff${ED25519}`, /byte order mark/],
  ['PEM', `-----BEGIN PUBLIC KEY-----\n${MARKER}\n-----END PUBLIC KEY-----`, /PEM.*ssh-keygen -i/],
  ['RFC 4716', '---- BEGIN SSH2 PUBLIC KEY ----\nComment: x\n', /RFC 4716.*ssh-keygen -i/],
  ['two keys', `${ED25519}\n${ED25519}`, /more than one line/],
  ['a CR between two keys', `${ED25519}\r${ED25519}`, /more than one line/],
  ['base64 over two lines', ED25519.replace('AAAAC3', 'AAAAC3\n'), /more than one line/],
  ['a long line', `${ED25519} ${'x'.repeat(16_384)}`, /longer than 16 KiB/],
  ['DSA', lineOf('ssh-dss', ['p', 'q', 'g', 'y']), /DSA/],
  ['certificate', lineOf('ssh-ed25519-cert-v01@openssh.com', [POINT]), /certificate/],
  ['an option', `no-pty ${ED25519}`, /options.*before the key/],
  ['a command', `command="echo \\"a b\\"" ${ED25519}`, /options.*before the key/],
  ['options before DSA', `no-pty ${lineOf('ssh-dss', ['p'])}`, /options.*before the key/],
  ['no type', `${BASE64} ${MARKER}`, /type.*missing/],
  ['a type alone', 'ssh-ed25519', /stops after its type/],
  ['upper case', ED25519.replace('ssh-ed', 'SSH-ED'), /not one of those accepted/],
  ['a signature name', lineOf('rsa-sha2-256', [], 'ssh-rsa'), /not one of those accepted/],
  ['Ed448', lineOf('ssh-ed448', [Buffer.alloc(57)]), /not one of those accepted/],
  ['a comment line', `# ${ED25519}`, /options|not one of those/],
  ['a word', MARKER, /not one of those accepted/],
  ['prototype names', '__proto__ AAAA', /not one of those accepted/],
  ['url-safe base64', `ssh-ed25519 ${BASE64.replace(/.{3}$/, '-_-')}`, /base64/],
  ['extra padding', `ssh-ed25519 ${BASE64}==`, /base64/],
  ['padding left out', `ssh-ed25519 ${Buffer.alloc(1).toString('base64url')}`, /base64/],
  ['stray bits', 'ssh-ed25519 AB==', /base64/],
  ['a character lost', `ssh-ed25519 ${BASE64.slice(0, -1)}`, /base64/],
  ['a blank inside', `ssh-ed25519 ${BASE64.slice(0, 10)} ${BASE64.slice(10)}`, /base64|damaged/],
  ['another inner type', lineOf('ssh-rsa', [POINT], 'ssh-ed25519'), /not the type inside/],
  ['a lost field', lineOf('ssh-ed25519', []), /parts/],
  ['a field too many', lineOf('ssh-ed25519', [POINT, '']), /parts/],
  ['trailing bytes', lineOf('ssh-ed25519', [Buffer.concat([POINT, POINT])]), /32 bytes/],
  ['a short point', lineOf('ssh-ed25519', [POINT.subarray(1)]), /32 bytes/],
  ['a curve that differs', lineOf('ecdsa-sha2-nistp256', ['nistp384', P256]), /curve/],
  ['a point off its curve', lineOf('ecdsa-sha2-nistp256', ['nistp256', OFF_CURVE]), /curve/],
  ['no point', lineOf('ecdsa-sha2-nistp256', ['nistp256', Buffer.from([0])]), /uncompressed/],
  ['a compressed point', lineOf('ecdsa-sha2-nistp256', ['nistp256', COMPRESSED]), /uncompr/],
  [
    'a point of zeros',
    lineOf('ecdsa-sha2-nistp256', ['nistp256', join(4, Buffer.alloc(64))]),
    /curve/,
  ],
  ['a sk- point off its curve', lineOf(SK_ECDSA, ['nistp256', OFF_CURVE, 'ssh:']), /curve/],
  ['a sk- key without application', lineOf(SK_ED25519, [POINT]), /parts/],
  ['a zero in the application', lineOf(SK_ED25519, [POINT, 'ssh:\0']), /application/],
  ['a sk- Ed25519 point y = 1', lineOf(SK_ED25519, [encodeY(1n), 'ssh:']), /curve/],
  ['1024 bits', rsaLine(rsaFields(1024)), /2048/],
  ['2047 bits', rsaLine({ modulus: Buffer.alloc(256, 0x7f) }), /2048/],
  ['16392 bits', rsaLine({ modulus: Buffer.alloc(2049, 0x7f) }), /16384/],
  ['an even modulus', rsaLine({ modulus: Buffer.alloc(257, 0x7e) }), /even/],
  ['a negative modulus', rsaLine({ modulus: RSA.modulus.subarray(1) }), /shortest positive/],
  ['a padded modulus', rsaLine({ modulus: join(0, RSA.modulus) }), /shortest positive/],
  ['a padded exponent', rsaLine({ exponent: join(0, RSA.exponent) }), /shortest positive/],
  ['exponent nothing', rsaLine({ exponent: Buffer.alloc(0) }), /shortest positive/],
  ['exponent 0', rsaLine({ exponent: Buffer.from([0]) }), /shortest positive/],
  ['exponent 1', rsaLine({ exponent: Buffer.from([1]) }), /exponent/],
  ['an even exponent', rsaLine({ exponent: Buffer.from([4]) }), /exponent/],
  ['an exponent above the modulus', rsaLine({ exponent: Buffer.alloc(257, 0x7f) }), /exponent/],
  ['a long exponent with a long modulus', rsaLine(LONG_RSA), /exponent/],
];

for (const [name, text, expected] of REFUSED) {
  test(`refuses ${name}`, () => {
    const message = refusal(text);
    assert.match(message, expected);
    assert.ok(!message.includes(MARKER) && !message.includes(BASE64.slice(20, 40)));
  });
}

test('refuses control characters and broken Unicode anywhere in the line', () => {
  const characters = '\0\t\v\f\x1b\x7f\u0080\u0085\u009f\u2028\u2029\u202e\u2066\u200f';
  for (const character of [...characters, '\ud800', '\udc00']) {
    for (const text of [`${ED25519}${character}x`, ED25519.replace(' ', `${character}x`)]) {
      assert.match(refusal(text), /control character/);
    }
  }
  assert.match(refusal(`ssh-ed25519\t${BASE64}`), /control character/);
});

test('weak Ed25519 points and those beyond the prime are refused, with either sign', () => {
  for (const y of [0n, 1n, PRIME - 1n, PRIME, PRIME + 1n, 2n ** 255n - 1n]) {
    for (const sign of [0n, 2n ** 255n]) {
      assert.match(refusal(lineOf('ssh-ed25519', [encodeY(y + sign)])), /curve/);
    }
  }
  const orderEight = '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05';
  assert.match(refusal(lineOf('ssh-ed25519', [Buffer.from(orderEight, 'hex')])), /curve/);
});

/** RFC 8032 section 5.1.3 step by step, with the square root itself. */
function decompresses(y: bigint): boolean {
  const mod = (value: bigint) => ((value % PRIME) + PRIME) % PRIME;
  const power = (base: bigint, exponent: bigint): bigint => {
    if (exponent === 0n) return 1n;
    const half = power(mod(base * base), exponent >> 1n);
    return exponent & 1n ? mod(half * base) : half;
  };
  const d = mod(-121665n * power(121666n, PRIME - 2n));
  const [u, v] = [mod(y * y - 1n), mod(d * y * y + 1n)];
  const x = mod(u * v ** 3n * power(mod(u * v ** 7n), (PRIME - 5n) / 8n));
  return mod(v * x * x) === u || mod(v * x * x) === mod(-u);
}

test('property: an Ed25519 point is accepted exactly when RFC 8032 decompresses it', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 2n, max: PRIME - 2n }), fc.boolean(), (y, sign) => {
      const line = lineOf('ssh-ed25519', [encodeY(sign ? y + 2n ** 255n : y)]);
      if (decompresses(y)) assert.equal(parsePublicKey(line).line, line);
      else assert.match(refusal(line), /curve/);
    }),
    { numRuns: 200 },
  );
});

test('property: any text is a key or a refusal, in time', () => {
  const words = fc.constantFrom(' ', '\n', 'AAAA', '"', '\\', 'BEGIN', '----', MARKER, ED25519);
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.array(fc.oneof(words, fc.string()), { maxLength: 30 }).map((parts) => parts.join('')),
  );
  fc.assert(
    fc.property(text, (given) => {
      try {
        assert.ok(given.includes(parsePublicKey(given).line));
      } catch (error) {
        assert.ok(error instanceof AppError && !error.message.includes(MARKER), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test('long hostile texts are refused quickly', () => {
  const started = performance.now();
  for (const piece of [
    ' ',
    '\t',
    'BEGIN',
    '---- BEGIN ',
    'ssh- ',
    'AAAA',
    '"\\"',
    ' sk-x',
    'MII',
  ]) {
    refusal(`x${piece.repeat(200_000)}x`);
    refusal(`x${piece.repeat(3000)}x`);
  }
  assert.ok(performance.now() - started < 2000);
});
