import { readFile } from 'node:fs/promises';
import { getSystemErrorMessage } from 'node:util';
import { CliError, exitCodes } from './exit-codes.ts';
import type { Terminal } from './terminal.ts';

/** PEM and OpenSSH with a header, PuTTY, and OpenSSH's body alone. */
const privateKeyMark = /PRIVATE KEY|PuTTY-User-Key-File|b3BlbnNzaC1rZXktdjEA/;

const fileAdvice = 'It must be the .pub file of a key, or - for standard input';

/** The public key in a file, or on standard input for `-`. */
export async function readPublicKey(
  terminal: Terminal,
  source: string,
  advice = fileAdvice,
): Promise<string> {
  const text = source === '-' ? await readAll(terminal.stdin) : await readTextFile(source, advice);
  // The service would refuse it too, but then it would have left this machine.
  if (privateKeyMark.test(text)) {
    const name = source === '-' ? 'standard input' : source;
    throw new CliError(
      `${name} holds a private key, and only the public half is wanted. It was not sent. Give the file that ends in .pub.`,
      exitCodes.usage,
    );
  }
  return text;
}

export async function readAll(stream: NodeJS.ReadableStream): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString('utf8');
}

async function readTextFile(path: string, advice: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    const message = `${path} cannot be read: ${systemReason(error)}. ${advice}.`;
    throw new CliError(message, exitCodes.usage);
  }
}

/** `no such file or directory` and its like; rethrows what is no failure of the system. */
export function systemReason(error: unknown): string {
  const errno = error instanceof Error && 'errno' in error ? error.errno : undefined;
  if (typeof errno !== 'number') throw error;
  return getSystemErrorMessage(errno);
}
