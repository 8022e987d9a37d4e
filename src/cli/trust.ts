import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { CliError, exitCodes } from './exit-codes.ts';
import { systemReason } from './input.ts';

/** From now on HTTPS with these certificates (PEM) is trusted, beside what this machine trusts anyway. */
export function trustCertificates(path: string): void {
  const text = readText(path);
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  if (blocks.length === 0 || !blocks.every(isCertificate))
    throw new CliError(`${path} holds no certificate in PEM format.`, exitCodes.usage);
  setDefaultCACertificates([...getCACertificates('default'), ...blocks]);
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new CliError(
      `The certificates in ${path} cannot be read: ${systemReason(error)}. Name others with --ca or BERTH_CA.`,
      exitCodes.usage,
    );
  }
}

function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).fingerprint256 !== '';
  } catch {
    return false;
  }
}
