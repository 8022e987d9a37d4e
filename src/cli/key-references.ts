import type { Client } from '../api/client.ts';
import { parseReference } from '../domain/ids.ts';
import { parsePublicKey } from '../domain/ssh-public-key.ts';
import { CliError, exitCodes } from './exit-codes.ts';
import { readPublicKey } from './input.ts';
import type { Terminal } from './terminal.ts';

export const keyArgument = '<key>';
export const keyArgumentHelp =
  'a fingerprint (SHA256:...), a .pub file (- reads standard input), or a UUID of the address book';

/** The fingerprint of the key that the user means. */
export async function findFingerprint(
  terminal: Terminal,
  client: Client,
  reference: string,
): Promise<string> {
  if (/^SHA256:[A-Za-z0-9+/]{43}$/.test(reference)) return reference;
  if (reference.startsWith('SHA256:')) {
    throw new CliError(
      `"${reference}" is no whole fingerprint: after SHA256: come 43 characters, as ssh-keygen -l prints them.`,
      exitCodes.usage,
    );
  }
  const parsed = parseReference(reference);
  if (!parsed || !('uuid' in parsed))
    return parsePublicKey(await readPublicKey(terminal, reference)).fingerprint;
  const entry = (await client.listBookKeys()).find((key) => key.id === parsed.uuid);
  if (entry) return entry.fingerprint;
  throw new CliError(
    `The address book has no entry ${reference}. See them all with: berth key book list`,
    exitCodes.notFound,
  );
}
