/**
 * The certificate that the service answers HTTPS with. It is read anew when its files change or when somebody says so,
 * without a connection being lost; a pair that is broken or half-written changes nothing but the log.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync, unwatchFile, watchFile } from 'node:fs';
import type { Server } from 'node:https';
import { createSecureContext } from 'node:tls';
import { conflict } from '../domain/errors.ts';
import type { Log } from '../services/context.ts';

export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

interface Pair {
  readonly cert: string;
  readonly key: string;
  /** SHA-256, as browsers and `openssl x509 -fingerprint` show it. */
  readonly fingerprint: string;
  readonly validTo: string;
}

/** What the server is told, at first and at every change: `setSecureContext` forgets what it is not told again. */
interface ServerSettings {
  readonly cert: string;
  readonly key: string;
  readonly minVersion: 'TLSv1.2';
  /** Milliseconds. */
  readonly handshakeTimeout: number;
}

const watchEveryMs = 2000;

export class TlsIdentity {
  readonly files: CertificateFiles;
  readonly #log: Log;
  readonly #handshakeTimeoutMs: number;
  readonly #servers = new Set<Server>();
  readonly #onChange = () => this.reload();
  #pair: Pair;

  /** Throws a `conflict` that says what is wrong with the files. */
  constructor(files: CertificateFiles, log: Log, handshakeTimeoutMs = 10_000) {
    this.files = files;
    this.#log = log;
    this.#handshakeTimeoutMs = handshakeTimeoutMs;
    this.#pair = readPair(files);
  }

  get fingerprint(): string {
    return this.#pair.fingerprint;
  }

  settings(): ServerSettings {
    const { cert, key } = this.#pair;
    const handshakeTimeout = this.#handshakeTimeoutMs;
    return { cert, key, minVersion: 'TLSv1.2', handshakeTimeout };
  }

  /** From now on the server shows whatever certificate is the newest. */
  attach(server: Server): void {
    this.#servers.add(server);
    server.once('close', () => this.#servers.delete(server));
  }

  /** Reads the files again; keeps what it has, and logs why, when they cannot be used. */
  reload(): void {
    try {
      this.#use(readPair(this.files));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#log.error({ reason, fingerprint: this.fingerprint }, 'certificate not reloaded');
    }
  }

  #use(pair: Pair): void {
    if (pair.cert === this.#pair.cert && pair.key === this.#pair.key) return;
    this.#pair = pair;
    for (const server of this.#servers) server.setSecureContext(this.settings());
    const { fingerprint, validTo } = pair;
    this.#log.info({ fingerprint, validTo }, 'certificate reloaded');
  }

  /** By looking every so often: this follows links, as certbot and Kubernetes swap them, on every file system. */
  watch(everyMs = watchEveryMs): void {
    for (const file of [this.files.certFile, this.files.keyFile])
      watchFile(file, { persistent: false, interval: everyMs }, this.#onChange);
  }

  close(): void {
    for (const file of [this.files.certFile, this.files.keyFile]) unwatchFile(file, this.#onChange);
  }
}

function readPair({ certFile, keyFile }: CertificateFiles): Pair {
  const cert = readPem(certFile, 'certificate');
  const key = readPem(keyFile, 'key');
  const certificate = parseCertificate(cert, certFile);
  if (!certificate.checkPrivateKey(parseKey(key, keyFile)))
    throw conflict(`The key ${keyFile} does not belong to the certificate ${certFile}.`);
  try {
    createSecureContext({ cert, key, minVersion: 'TLSv1.2' });
  } catch (error) {
    throw conflict(`The certificate ${certFile} cannot be used (${codeOf(error)}).`);
  }
  return { cert, key, fingerprint: certificate.fingerprint256, validTo: certificate.validTo };
}

function readPem(file: string, what: string): string {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw conflict(`The ${what} ${file} cannot be read (${codeOf(error)}).`);
  }
  // Whoever reads the chain takes what is whole and overlooks the rest.
  const begun = text.match(/^-----BEGIN /gm)?.length ?? 0;
  if (begun > 0 && begun === text.match(/^-----END /gm)?.length) return text;
  throw conflict(`The ${what} ${file} is not a whole file in PEM format.`);
}

function parseCertificate(text: string, file: string): X509Certificate {
  try {
    return new X509Certificate(text);
  } catch {
    throw conflict(`The file ${file} holds no certificate in PEM format.`);
  }
}

function parseKey(text: string, file: string): KeyObject {
  if (text.includes('ENCRYPTED'))
    throw conflict(
      `The key ${file} is encrypted, and nobody is there to ask for its passphrase. Decrypt it: openssl pkey -in ${file} -out FILE`,
    );
  try {
    return createPrivateKey(text);
  } catch {
    throw conflict(`The file ${file} holds no private key in PEM format.`);
  }
}

function codeOf(error: unknown): string {
  const { code } = Object(error) as { code?: unknown };
  return typeof code === 'string' ? code : 'no reason given';
}
