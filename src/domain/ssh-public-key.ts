import { createHash, createPublicKey } from 'node:crypto';
import { invalidRequest } from './errors.ts';

/** A public key in OpenSSH's one-line form: `type base64 [comment]` (sshd(8), AUTHORIZED_KEYS FILE FORMAT). */
export interface SshPublicKey {
  readonly type: string;
  readonly base64: string;
  /** What `base64` holds: the key in the wire format of RFC 4253 section 6.6. */
  readonly blob: Buffer;
  /** All that follows the base64 and its spaces; empty when there is none. */
  readonly comment: string;
  /** The text as it was given, without surrounding white space. */
  readonly line: string;
  /** As `ssh-keygen -l` prints it; see `fingerprintOf`. */
  readonly fingerprint: string;
}

/** RFC 8032 section 5.1: the field and the constant d of edwards25519. */
const ED25519_PRIME = 2n ** 255n - 19n;
const ED25519_D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;

/** Group orders (SP 800-186 section 3.2.1) by the curve names of RFC 5656. */
const CURVE_ORDERS = {
  nistp256: 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n,
  nistp384:
    0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n,
  nistp521:
    0x1fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409n,
} as const;
type CurveName = keyof typeof CURVE_ORDERS;

const RSA_MINIMUM_BITS = 2048;
/** SSHBUF_MAX_BIGNUM of OpenSSH, and OPENSSL_RSA_MAX_MODULUS_BITS. */
const RSA_MAXIMUM_BITS = 16384;

/** The largest key accepted takes under 3 KiB; the rest is room for a comment. */
const LINE_MAXIMUM_BYTES = 16 * 1024;

/** Throws unless the field is sound; the fields are those of the blob that follow its type. */
type FieldCheck = (field: Buffer, fields: readonly Buffer[]) => void;

/** The accepted types: RFC 8709, RFC 5656, RFC 4253, and OpenSSH's PROTOCOL.u2f for the sk- forms. */
const KEY_TYPES: ReadonlyMap<string, readonly FieldCheck[]> = new Map([
  ['ssh-ed25519', [checkEd25519Point]],
  ['ecdsa-sha2-nistp256', ecdsaChecks('nistp256')],
  ['ecdsa-sha2-nistp384', ecdsaChecks('nistp384')],
  ['ecdsa-sha2-nistp521', ecdsaChecks('nistp521')],
  ['ssh-rsa', [checkExponent, checkModulus]],
  ['sk-ssh-ed25519@openssh.com', [checkEd25519Point, checkApplication]],
  ['sk-ecdsa-sha2-nistp256@openssh.com', [...ecdsaChecks('nistp256'), checkApplication]],
]);
export const KEY_TYPE_NAMES: readonly string[] = [...KEY_TYPES.keys()];

const EXPECTED_FORM =
  'Send the one line of the .pub file: a key type (such as ssh-ed25519), its base64 text, and an optional comment.';

/**
 * Reads one public key. Strict where sshd is lenient, so that what is accepted here also logs in.
 *
 * @throws AppError `invalid_request`; the message says why and how to mend it, and never repeats the text.
 */
export function parsePublicKey(text: string): SshPublicKey {
  refusePrivateKey(text);
  const line = withoutOuterSpace(text);
  refuseOtherForms(line);
  refuseUnsafeText(line);
  const { type, base64, comment } = splitLine(line);
  const blob = decodeBlob(base64);
  checkBlob(type, blob);
  return { type, base64, blob, comment, line, fingerprint: fingerprintOf(blob) };
}

/** `SHA256:` and the unpadded base64 of the blob's SHA-256, as `ssh-keygen -l` prints it. */
export function fingerprintOf(blob: Buffer): string {
  return `SHA256:${createHash('sha256').update(blob).digest('base64').replace(/=+$/, '')}`;
}

/** The strings (RFC 4251 section 5) that a blob consists of; undefined when it is not wholly made of them. */
export function splitBlob(blob: Buffer): Buffer[] | undefined {
  const fields: Buffer[] = [];
  let offset = 0;
  while (offset < blob.length) {
    if (blob.length - offset < 4) return undefined;
    const start = offset + 4;
    offset = start + blob.readUInt32BE(offset);
    if (offset > blob.length) return undefined;
    fields.push(blob.subarray(start, offset));
  }
  return fields;
}

/** Headers and footers of PEM, OpenSSH, ssh.com and PuTTY, then the starts of bodies pasted without a header. */
const PRIVATE_KEY_MARK =
  /(?:BEGIN|END)[A-Z0-9 ]{0,40}PRIVATE ?KEY|PuTTY-User-Key-File-|Private-(?:Lines|MAC):|SSH PRIVATE KEY FILE FORMAT|b3BlbnNzaC1rZXktdjEA|(?:^|\s)(?:MC4CAQAwBQYDK2Vw|MII[\w+/]{3}IBA[AD]|MHcCAQEE|MIG\wAgEA)/;

/** First of all checks, on the whole text: whoever sent one must hear of it whatever else is wrong. */
function refusePrivateKey(text: string): void {
  // Text that was saved as UTF-16 and read as bytes has a NUL beside every letter.
  if (!PRIVATE_KEY_MARK.test(text.replaceAll('\0', ''))) return;
  throw invalidRequest(
    'This is a private key. Treat it as exposed: stop using it and make a new pair. Then send the public half, the one line of the .pub file.',
  );
}

/** Only what OpenSSH takes for space: a no-break space or a byte order mark is part of the text. */
function withoutOuterSpace(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && ' \t\r\n'.includes(text.charAt(start))) start += 1;
  while (end > start && ' \t\r\n'.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function refuseOtherForms(line: string): void {
  if (line === '') throw invalidRequest(`The public key is empty. ${EXPECTED_FORM}`);
  if (line.startsWith('\ufeff')) {
    throw invalidRequest(
      'The public key starts with a byte order mark. Save the file as UTF-8 without one and send it again.',
    );
  }
  if (/(?:^|[\r\n])-{4,5} ?BEGIN /.test(line)) {
    throw invalidRequest(
      'This is a PEM or RFC 4716 public key. Convert it with "ssh-keygen -i -m PKCS8 -f FILE" (PEM) or "ssh-keygen -i -f FILE" (RFC 4716, PuTTY) and send the line that prints.',
    );
  }
}

/** C0, DEL, C1, the line and paragraph separators, and the marks that make text read in another order. */
const CONTROL_CHARACTER =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;

/** The line goes into a file and into logs and lists: it must be one line there, and look like what it is. */
function refuseUnsafeText(line: string): void {
  if (Buffer.byteLength(line) > LINE_MAXIMUM_BYTES) {
    throw invalidRequest(
      'The public key is longer than 16 KiB. Shorten its comment, or use an Ed25519 key.',
    );
  }
  if (/[\r\n]/.test(line)) {
    throw invalidRequest(
      'The public key is more than one line. Send one key in each request, with its base64 text unbroken.',
    );
  }
  if (CONTROL_CHARACTER.test(line) || !line.isWellFormed()) {
    throw invalidRequest(
      'The public key holds a control character or broken Unicode. Separate its parts with single spaces and leave such characters out of the comment.',
    );
  }
}

function splitLine(line: string): { type: string; base64: string; comment: string } {
  const [, type = '', base64 = '', comment = ''] = /^([^ ]+) *([^ ]*) *(.*)$/.exec(line) ?? [];
  if (!KEY_TYPES.has(type)) throw invalidRequest(reasonAgainst(type, line));
  if (base64 === '') {
    throw invalidRequest(`The public key stops after its type. ${EXPECTED_FORM}`);
  }
  return { type, base64, comment };
}

/** Why a line with this first word is no key for us. */
function reasonAgainst(type: string, line: string): string {
  if (/-cert-v\d\d@openssh\.com$/.test(type)) {
    return 'This is a certificate, and certificates are not accepted. Send the plain public key (the .pub file whose name does not end in -cert.pub).';
  }
  if (type === 'ssh-dss') {
    return 'DSA keys are not accepted: OpenSSH no longer supports them. Make a new key with "ssh-keygen -t ed25519".';
  }
  if (type.startsWith('AAAA')) {
    return `The key type before the base64 text is missing. ${EXPECTED_FORM}`;
  }
  if (/ (?:ssh-|ecdsa-sha2-|sk-)[^ ]+ +AAAA/.test(line)) {
    return 'The line has options or a host name before the key. Remove what stands before the key type and send the rest.';
  }
  return `The key type is not one of those accepted: ${KEY_TYPE_NAMES.join(', ')}. ${EXPECTED_FORM}`;
}

/** RFC 4648 section 4 with padding and no stray bits, so that a key has one spelling and can be found by it. */
function decodeBlob(base64: string): Buffer {
  const blob = Buffer.from(base64, 'base64');
  if (blob.toString('base64') === base64) return blob;
  throw invalidRequest(
    'The base64 text of the public key is damaged or cut short. Copy the whole line of the .pub file again, without changes or line breaks.',
  );
}

function checkBlob(type: string, blob: Buffer): void {
  const [innerType, ...fields] = splitBlob(blob) ?? [];
  if (innerType === undefined) throw damaged('its parts do not have the lengths they state');
  if (!innerType.equals(Buffer.from(type))) {
    throw damaged('the type before the base64 text is not the type inside it');
  }
  const checks = KEY_TYPES.get(type) ?? [];
  if (fields.length !== checks.length) throw damaged('it has too few or too many parts');
  fields.forEach((field, index) => {
    checks[index]?.(field, fields);
  });
}

function damaged(reason: string) {
  return invalidRequest(
    `The public key is damaged: ${reason}. Copy the whole line of the .pub file again, or make a new key with "ssh-keygen -t ed25519".`,
  );
}

/** RFC 8032 section 5.1.3, without computing x: that it exists is enough. sshd leaves this check to each login. */
function checkEd25519Point(encoded: Buffer): void {
  if (encoded.length !== 32) throw damaged('an Ed25519 key has 32 bytes');
  const y = BigInt.asUintN(255, toBigInt(Buffer.from(encoded).reverse()));
  const ySquared = (y * y) % ED25519_PRIME;
  const u = ySquared - 1n;
  const v = ED25519_D * ySquared + 1n;
  // Points of order 1, 2, 4 and 8 (y = 1, -1, 0, and x² = -y²): anyone can forge signatures for these.
  const smallOrder = u === 0n || y === 0n || (u + ySquared * v) % ED25519_PRIME === 0n;
  if (y >= ED25519_PRIME || smallOrder || !isSquareModPrime(u * v, ED25519_PRIME)) {
    throw damaged('its point is not on the curve, or is a weak one');
  }
}

/** Euler's criterion. u / v is a square exactly when u * v is one. */
function isSquareModPrime(value: bigint, prime: bigint): boolean {
  let base = ((value % prime) + prime) % prime;
  let result = 1n;
  for (let exponent = (prime - 1n) / 2n; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % prime;
    base = (base * base) % prime;
  }
  return result === 1n;
}

function ecdsaChecks(curveName: CurveName): FieldCheck[] {
  const checkName = (name: Buffer) => {
    if (!name.equals(Buffer.from(curveName))) throw damaged('its curve is not the one of its type');
  };
  return [checkName, (point) => checkPoint(curveName, point)];
}

/** SEC 1 section 2.3.3, uncompressed form alone: OpenSSH reads no other. */
function checkPoint(curveName: CurveName, point: Buffer): void {
  const order = CURVE_ORDERS[curveName];
  const orderBits = order.toString(2).length;
  const middle = 1 + Math.ceil(orderBits / 8);
  if (point[0] !== 4 || point.length !== 2 * middle - 1) {
    throw damaged('its point is not in the uncompressed form that OpenSSH reads');
  }
  const [x, y] = [point.subarray(1, middle), point.subarray(middle)];
  // The range is that of sshkey_ec_validate_public in OpenSSH, which refuses suspiciously small coordinates.
  const least = 2n ** BigInt(orderBits >> 1);
  const inRange = [x, y].map(toBigInt).every((value) => value >= least && value < order - 1n);
  if (!inRange || !isOnCurve(curveName, x, y)) throw damaged('its point is not on the curve');
}

function isOnCurve(curveName: CurveName, x: Buffer, y: Buffer): boolean {
  const crv = curveName.replace('nistp', 'P-');
  const key = { kty: 'EC', crv, x: x.toString('base64url'), y: y.toString('base64url') };
  try {
    createPublicKey({ key, format: 'jwk' });
    return true;
  } catch {
    return false;
  }
}

function checkModulus(bytes: Buffer): void {
  const modulus = readPositive(bytes);
  const bits = modulus.toString(2).length;
  if (bits < RSA_MINIMUM_BITS || bits > RSA_MAXIMUM_BITS) {
    throw invalidRequest(
      `An RSA key must have ${RSA_MINIMUM_BITS} to ${RSA_MAXIMUM_BITS} bits. Make a new key with "ssh-keygen -t ed25519".`,
    );
  }
  if (modulus % 2n === 0n) throw damaged('its RSA modulus is even');
}

/** OpenSSL verifies nothing with an exponent of more than 64 bits once the modulus has more than 3072. */
function checkExponent(bytes: Buffer, [, modulus = bytes]: readonly Buffer[]): void {
  const exponent = readPositive(bytes);
  const limitBits = toBigInt(modulus) >= 2n ** 3072n ? 64n : 2047n;
  if (exponent < 3n || exponent % 2n === 0n || exponent >= 2n ** limitBits) {
    throw damaged('its RSA exponent is unusable');
  }
}

/** An mpint (RFC 4251 section 5) above zero, in its one shortest form. */
function readPositive(bytes: Buffer): bigint {
  const [first = 0x80, second = 0] = bytes;
  const negative = first >= 0x80;
  const padded = first === 0 && second < 0x80;
  if (negative || padded) throw damaged('an RSA number is not in its shortest positive form');
  return toBigInt(bytes);
}

/** OpenSSH reads the application (mostly `ssh:`) as a C string. */
function checkApplication(application: Buffer): void {
  if (application.includes(0)) throw damaged('its application name holds a zero byte');
}

function toBigInt(bytes: Buffer): bigint {
  return bytes.length === 0 ? 0n : BigInt(`0x${bytes.toString('hex')}`);
}
