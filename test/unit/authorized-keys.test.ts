import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  authorizeKey,
  listKeyLines,
  listKeys,
  revokeKey,
} from '../../src/domain/authorized-keys.ts';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import { parsePublicKey } from '../../src/domain/ssh-public-key.ts';

const NOW = new Date('2026-05-04T03:02:01.500Z');
const KEY = generateKeyPair('berth').publicKey.line;
const OTHER = generateKeyPair('other').publicKey.line;
const { base64: BASE64, fingerprint: FINGERPRINT } = parsePublicKey(KEY);
const BARE = `ssh-ed25519 ${BASE64}`;

const bytes = (text: string) => Buffer.from(text);
const after = (seconds: number) => new Date(NOW.getTime() + seconds * 1000);
const authorize = (text: string, expiresAt?: Date) =>
  authorizeKey(bytes(text), { publicKey: KEY, ...(expiresAt ? { expiresAt } : {}) }, NOW);
const revoke = (text: string, publicKey = KEY) =>
  revokeKey(bytes(text), { kind: 'key', publicKey });

/** `expiry-time` as sshd(8) wants it, in UTC. */
const expiry = (date: Date) =>
  `expiry-time="${date.toISOString().slice(0, 19).replace(/\D/g, '')}Z"`;

describe('authorizeKey', () => {
  test('appends a line, after a newline where the file lacks one', () => {
    for (const [before, expected] of [
      ['', `${KEY}\n`],
      ['\n', `\n${KEY}\n`],
      [`${OTHER}\n`, `${OTHER}\n${KEY}\n`],
      [OTHER, `${OTHER}\n${KEY}\n`],
      [`${OTHER}\r\n# note`, `${OTHER}\r\n# note\n${KEY}\n`],
    ] as const) {
      const result = authorize(before);
      assert.equal(result.file.toString(), expected);
      assert.deepEqual([result.outcome, result.line], ['added', KEY]);
    }
  });

  const present = [
    KEY,
    BARE,
    `${BARE} another comment`,
    ` \t${BARE}\r\n`,
    `ssh-ed25519\t${BASE64}\tx`,
    `no-pty ${KEY}`,
    `command="echo \\"a b\\" #",no-pty ${KEY}`,
    `from="10.0.0.0/8,!10.1.0.0/16" \t ${KEY}`,
    `command="ssh-ed25519 AAAA" ${KEY}`,
    `environment="cert-authority=expiry-time" ${KEY}`,
    `command="a,cert-authority,b" ${KEY}`,
    `command="expiry-time=\\"20200101\\"" ${KEY}`,
    `${BARE}\0 what follows a NUL is not read`,
  ];
  for (const line of present) {
    test(`counts as present: ${JSON.stringify(line.replace(BASE64, '…'))}`, () => {
      const text = `# first\n${OTHER}\n${line}\n# last`;
      const result = authorize(text);
      assert.equal(result.file.toString(), text);
      assert.deepEqual([result.outcome, result.line], ['present', line.replace(/\r?\n$/, '')]);
      assert.equal(authorize(text, after(60)).outcome, 'present');
    });
  }

  const absent = [
    `# ${KEY}`,
    `  #${KEY}`,
    `cert-authority ${KEY}`,
    `no-pty,CERT-Authority ${KEY}`,
    ...['no-such-option', 'restrict="x"', 'command=x', 'pty,', 'from="a",from="b"'].map(
      (options) => `${options} ${KEY}`,
    ),
    `command="unfinished ${KEY}`,
    `command="a b" c ${KEY}`,
    `ssh-rsa ${BASE64}`,
    `ssh-ed25519 ${BASE64}A`,
    `ssh-ed25519 x${BASE64}`,
    `SSH-ED25519 ${BASE64}`,
    BASE64,
    `\ufeff${KEY}`,
    `${OTHER} ${BASE64}`,
    `${OTHER}\0\r${KEY}`,
    `expiry-time="20991332" ${KEY}`,
    'expiry-time="20990101" ',
    `expiry-time=20990101Z ${KEY}`,
  ];
  for (const line of absent) {
    test(`does not count: ${JSON.stringify(line.replace(BASE64, '…'))}`, () => {
      assert.equal(authorize(`${line}\n`).file.toString(), `${line}\n${KEY}\n`);
      assert.equal(authorize(`${line}\n`, after(60)).outcome, 'added');
    });
  }

  test('the same RSA key under a signature name counts, as it does for sshd', () => {
    const text = `rsa-sha2-512 AAAAB3NzaC1yc2EAAAADAQABAAAAAQU= x\n`;
    const publicKey = 'ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQU=';
    assert.equal(authorizeKey(bytes(text), { publicKey }, NOW).outcome, 'present');
    assert.equal(revoke(text, publicKey).removed, 1);
  });

  test('refuses what is not one key on one line', () => {
    for (const publicKey of ['', 'x', `${KEY}\n${OTHER}`, `${KEY}\r`, `no-pty ${KEY}`]) {
      assert.throws(() => authorizeKey(bytes(''), { publicKey }, NOW), TypeError);
      assert.throws(() => revoke('', publicKey), TypeError);
    }
  });
});

describe('expiry', () => {
  test('is written in UTC, before the key, in whole seconds', () => {
    const expiresAt = new Date('2027-01-02T03:04:05.999Z');
    const line = `expiry-time="20270102030405Z" ${KEY}`;
    const result = authorize('', expiresAt);
    assert.deepEqual([result.file.toString(), result.line], [`${line}\n`, line]);
    assert.equal(authorize(`${line}\n`, expiresAt).outcome, 'present');
  });

  test('a retried request adds no second line', () => {
    for (const [seconds, delay, outcome] of [
      [60, 6, 'present'],
      [60, 7, 'added'],
      [1200, 119, 'present'],
      [31_536_000, 119, 'present'],
      [31_536_000, 122, 'added'],
    ] as const) {
      const { file } = authorize('', after(seconds - delay));
      const key = { publicKey: KEY, expiresAt: after(seconds) };
      assert.equal(authorizeKey(file, key, NOW).outcome, outcome, `${seconds} s, ${delay} s late`);
    }
  });

  test('a later end is enough, an earlier one is not, and none asks for a line without', () => {
    const text = `no-pty,${expiry(after(3600))} ${KEY}\n`;
    assert.equal(authorize(text, after(600)).outcome, 'present');
    assert.equal(authorize(text, after(7200)).outcome, 'added');
    assert.equal(authorize(text).file.toString(), `${text}${KEY}\n`);
    assert.equal(authorize(`${text}${KEY}\n`, after(7200)).outcome, 'present');
  });

  test('of several times the earliest holds, whatever the case of the option', () => {
    const text = `${expiry(after(9999))},EXPIRY-Time=${expiry(after(60)).slice(12)} ${KEY}\n`;
    assert.equal(authorize(text, after(600)).outcome, 'added');
    assert.deepEqual(listKeys(bytes(text))[0]?.expiresAt, new Date('2026-05-04T03:03:01Z'));
  });

  const forms: readonly [value: string, date: Date | undefined][] = [
    ['20270102Z', new Date('2027-01-02T00:00:00Z')],
    ['202701020304Z', new Date('2027-01-02T03:04:00Z')],
    ['20270102030405z', new Date('2027-01-02T03:04:05Z')],
    ['20270102UTC', new Date('2027-01-02T00:00:00Z')],
    ['20270102', new Date(2027, 0, 2)],
    ['202707020304', new Date(2027, 6, 2, 3, 4)],
    ['20270702030405', new Date(2027, 6, 2, 3, 4, 5)],
    ['2027070203', undefined],
    ['20271302', undefined],
    ['202701022460', undefined],
    ['20270102030462', undefined],
    ['19691231', undefined],
    ['2027-01-02', undefined],
    ['+1d', undefined],
    ['', undefined],
  ];
  for (const [value, date] of forms) {
    test(`reads ${JSON.stringify(value)}`, () => {
      assert.deepEqual(listKeys(bytes(`expiry-time="${value}" ${KEY}`))[0]?.expiresAt, date);
    });
  }
});

describe('revokeKey', () => {
  test('by key, takes out every line that carries it, whole', () => {
    const text = `# ${KEY}\n${KEY}\r\n${OTHER}\n no-pty ${BARE} x\n\ncert-authority ${KEY}\n${BARE}`;
    const result = revoke(text);
    assert.equal(result.removed, 3);
    assert.equal(result.file.toString(), `# ${KEY}\n${OTHER}\n\ncert-authority ${KEY}\n`);
  });

  test('by key, sees through a stray CR in the base64, as sshd does', () => {
    assert.equal(revoke(`ssh-ed25519 ${BASE64.replace('AAAA', 'AA\rAA')} x\n`).removed, 1);
  });

  test('by line, takes out the last equal one alone', () => {
    const revokeLine = (text: string, line: string) =>
      revokeKey(bytes(text), { kind: 'line', line }).file.toString();
    assert.equal(revokeLine(`${KEY}\n${OTHER}\n${KEY}\r\n${KEY} x\n`, KEY).split(KEY).length, 3);
    assert.equal(revokeLine(`${KEY}\n${OTHER}\n${KEY}`, KEY), `${KEY}\n${OTHER}\n`);
    assert.equal(revokeLine(`${KEY}\n#\n`, `${KEY}\n`), `${KEY}\n#\n`);
    assert.equal(revokeLine(`\n${KEY}\n\n`, ''), `\n${KEY}\n`);
    assert.equal(revokeLine(` ${KEY}\n`, KEY), ` ${KEY}\n`);
  });

  test('changes nothing where the key is not', () => {
    const file = bytes(`${OTHER}\n`);
    assert.deepEqual(revokeKey(file, { kind: 'key', publicKey: KEY }), { file, removed: 0 });
  });
});

test('listKeys describes each line that carries a key, in order', () => {
  const text = `# no\n\ngarbage here\n${OTHER}\r\n command="é \\" x" ssh-ed25519  ${BASE64}  Zoë  x \n`;
  const [first, second, ...rest] = listKeys(bytes(text));
  assert.deepEqual(rest, []);
  assert.deepEqual([first?.line, first?.comment, first?.options], [OTHER, 'other', '']);
  assert.deepEqual(second, {
    line: ` command="é \\" x" ssh-ed25519  ${BASE64}  Zoë  x `,
    options: 'command="é \\" x"',
    rules: {
      understood: true,
      forSigner: false,
      limited: true,
      endMs: Number.POSITIVE_INFINITY,
    },
    keyType: 'ssh-ed25519',
    publicKey: BARE,
    comment: 'Zoë  x ',
    fingerprint: FINGERPRINT,
  });
});

/** Files as hands and tools leave them: keys, options, comments, CRLF, NUL, bytes that are no UTF-8. */
const pieces = fc.oneof(
  fc.constantFrom('\n', '\r\n', ' ', '\t', '#', '"', '\\"', ',', '\0', 'no-pty ', 'command="a b" '),
  fc.constantFrom(KEY, OTHER, BARE, BASE64, 'cert-authority ', `${expiry(after(900))} `),
);
const files = fc
  .array(fc.oneof(pieces.map(bytes), fc.uint8Array({ maxLength: 12 })), { maxLength: 25 })
  .map((parts) => Buffer.concat(parts));
const expiries = fc.option(fc.integer({ min: 60, max: 90_000 }).map(after), { nil: undefined });

test('property: what was there stays, and asking again changes nothing', () => {
  fc.assert(
    fc.property(files, expiries, (file, expiresAt) => {
      const key = { publicKey: KEY, ...(expiresAt ? { expiresAt } : {}) };
      const first = authorizeKey(file, key, NOW);
      assert.deepEqual(first.file.subarray(0, file.length), file);
      assert.ok(listKeys(first.file).some(({ publicKey }) => publicKey === BARE));
      const again = authorizeKey(first.file, key, NOW);
      assert.equal(again.outcome, 'present');
      assert.deepEqual(again.file, first.file);
      if (first.outcome === 'present') assert.deepEqual(first.file, file);
    }),
    { numRuns: 2000 },
  );
});

test('property: taking back the line that was added restores the file', () => {
  fc.assert(
    fc.property(files, (file) => {
      const { file: added, line, outcome } = authorizeKey(file, { publicKey: KEY }, NOW);
      fc.pre(outcome === 'added');
      const { file: restored, removed } = revokeKey(added, { kind: 'line', line });
      const open = file.length > 0 && file.at(-1) !== 0x0a;
      assert.equal(removed, 1);
      assert.deepEqual(restored, open ? Buffer.concat([file, bytes('\n')]) : file);
    }),
    { numRuns: 1000 },
  );
});

test('property: revoking removes the key and leaves every other line', () => {
  fc.assert(
    fc.property(files, (file) => {
      const { file: left, removed } = revokeKey(file, { kind: 'key', publicKey: KEY });
      const lines = (buffer: Buffer) => buffer.toString('latin1').split(/(?<=\n)/);
      const kept = new Set(lines(file));
      assert.ok(lines(left).every((line) => left.length === 0 || kept.has(line)));
      const before = listKeys(file).filter(({ options }) => !/cert-authority/i.test(options));
      assert.ok(removed >= before.filter(({ publicKey }) => publicKey === BARE).length);
      assert.equal(lines(file).length - lines(left).length <= removed, true);
      assert.equal(revokeKey(left, { kind: 'key', publicKey: KEY }).removed, 0);
    }),
    { numRuns: 1000 },
  );
});

describe('speed', () => {
  const fastestMs = (run: () => unknown) =>
    Math.min(
      ...Array.from({ length: 5 }, () => {
        const started = performance.now();
        run();
        return performance.now() - started;
      }),
    );

  // Against a file of the same size that is one long option: all of its bytes are looked at, once.
  test('no content makes a file of 1 MB much dearer than its bytes', () => {
    const filled = (piece: string) => piece.repeat(1_000_000 / piece.length);
    const readAll = (text: string) => {
      const file = bytes(text);
      return fastestMs(() => {
        listKeyLines(file);
        authorizeKey(file, { publicKey: KEY }, NOW);
        revokeKey(file, { kind: 'key', publicKey: OTHER });
        revokeKey(file, { kind: 'line', line: KEY });
      });
    };
    const baseMs = readAll(`command="${filled('x')}" ${KEY}\n`);
    const texts = ['\n', '\r\n', 'a\n', '# x\n'].map(filled);
    const lines = [',', 'a,', 'restrict,'].map((piece) => `${filled(piece)}pty ${KEY}\n`);
    const keys = [`${OTHER} ${'x'.repeat(110)}\n`, `${expiry(after(60))} ${KEY}\n`].map(filled);
    for (const text of [...texts, ...lines, ...keys]) {
      const ratio = readAll(text) / baseMs;
      // A class, not a measurement: what looks at a byte twice for each other one costs thousands of times as much.
      assert.ok(ratio < 10, `${JSON.stringify(text.slice(0, 10))} costs ${ratio} times as much`);
    }
  });

  test('a key behind a megabyte of options is found, as sshd finds it', () => {
    const text = `${'restrict,'.repeat(100_000)}pty ${KEY}\n`;
    assert.equal(listKeyLines(bytes(text))[0]?.rules.limited, true);
    assert.equal(authorize(text).outcome, 'present');
    assert.equal(revoke(text).file.length, 0);
  });

  test('a hostile line costs no more than its length', () => {
    for (const piece of ['a,', '"', '\\"', ' ', 'expiry-time="1",', `${BASE64} `, '\\', '=']) {
      const text = `${piece.repeat(1_000_000 / piece.length)} ${KEY}\n`;
      assert.ok(fastestMs(() => authorize(text)) < 2000, piece);
      assert.ok(fastestMs(() => revoke(text)) < 2000, piece);
    }
  });
});
