/** A certificate for trials, made once and kept in the data folder: who trusts it once goes on trusting it. */
import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join } from 'node:path';
import type { CertificateFiles } from './tls.ts';

const dayMs = 86_400_000;
const lifeDays = 365;
const renewBeforeDays = 30;

export interface SelfSignedOptions {
  readonly folder: string;
  /** Host names and addresses that clients may use. */
  readonly names: readonly string[];
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
}

/** Makes the certificate when there is none, when it is near its end, or when a name is missing in it. */
export async function ensureSelfSigned(options: SelfSignedOptions): Promise<CertificateFiles> {
  const { folder } = options;
  const files = { certFile: join(folder, 'tls-cert.pem'), keyFile: join(folder, 'tls-key.pem') };
  if (!isGood(files, options)) await make(files, options);
  return files;
}

/** Whatever this machine is called; nothing for "every address", which is no name. */
export function selfSignedNames(hostName: string, listenHost: string): string[] {
  const names = ['localhost', '127.0.0.1', '::1', hostName, listenHost];
  return [...new Set(names.filter((name) => !['', '0.0.0.0', '::'].includes(name)))];
}

function isGood({ certFile, keyFile }: CertificateFiles, options: SelfSignedOptions): boolean {
  if (!existsSync(certFile) || !existsSync(keyFile)) return false;
  try {
    const certificate = new X509Certificate(readFileSync(certFile));
    const endsAt = certificate.validToDate.getTime();
    const isFresh = endsAt - options.nowMs > renewBeforeDays * dayMs;
    return isFresh && options.names.every((name) => isFor(certificate, name));
  } catch {
    return false;
  }
}

function isFor(certificate: X509Certificate, name: string): boolean {
  if (isIP(name) !== 0) return certificate.checkIP(name) !== undefined;
  // `checkHost` has its own idea of what a host name is, and ours may not be one.
  return (certificate.subjectAltName ?? '').split(', ').includes(`DNS:${name}`);
}

async function make(files: CertificateFiles, { names, nowMs }: SelfSignedOptions): Promise<void> {
  // Loaded for this alone: it is large, and most services never need it.
  const { default: selfsigned } = await import('selfsigned');
  const made = await selfsigned.generate([{ name: 'commonName', value: 'Berth (self-signed)' }], {
    keyType: 'ec',
    algorithm: 'sha256',
    notBeforeDate: new Date(nowMs - dayMs),
    notAfterDate: new Date(nowMs + lifeDays * dayMs),
    extensions: [
      // Not one that could vouch for others: whoever trusts it trusts this service alone.
      { name: 'basicConstraints', cA: false, critical: true },
      { name: 'keyUsage', digitalSignature: true, critical: true },
      { name: 'extKeyUsage', serverAuth: true },
      { name: 'subjectAltName', altNames: names.map(altName) },
    ],
  });
  replaceFile(files.keyFile, made.private, 0o600);
  replaceFile(files.certFile, made.cert, 0o644);
}

const altName = (name: string) =>
  isIP(name) === 0 ? { type: 2 as const, value: name } : { type: 7 as const, ip: name };

function replaceFile(path: string, text: string, mode: number): void {
  const temporary = `${path}.new`;
  rmSync(temporary, { force: true });
  writeFileSync(temporary, `${text.trimEnd()}\n`, { mode, flag: 'wx' });
  renameSync(temporary, path);
}
