import { existsSync } from 'node:fs';
import { ApiError, type Client, UnreachableError } from '../api/client.ts';
import type { InstanceKey } from '../api/instance-keys.ts';
import type { BookKey, KeyPlace } from '../api/keys.ts';
import { parseReference } from '../domain/ids.ts';
import { parsePublicKey } from '../domain/ssh-public-key.ts';
import { CliError, exitCodes } from './exit-codes.ts';
import { readPublicKey } from './input.ts';
import type { Terminal } from './terminal.ts';

export const keyArgument = '<key>';
export const keyArgumentHelp =
  'a fingerprint (SHA256:...), a .pub file (- reads standard input), or a name or UUID of the address book';

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
    return parsePublicKey(await readKeyOrEntry(terminal, client, reference, anyAdvice)).fingerprint;
  const entry = (await client.listBookKeys()).find((key) => key.id === parsed.uuid);
  if (entry) return entry.fingerprint;
  throw new CliError(
    `The address book has no entry ${reference}. See them all with: berth key book list`,
    exitCodes.notFound,
  );
}

const entryAdvice =
  'It must be the .pub file of a key, - for standard input, or a name that berth key book list shows';
const anyAdvice =
  'It must be a fingerprint (SHA256:...), the .pub file of a key, - for standard input, or a name that berth key book list shows';

/** The public key in a file or on standard input, or, where there is no such file, of that name in the address book. */
export async function readKeyOrEntry(
  terminal: Terminal,
  client: Client,
  source: string,
  advice = entryAdvice,
): Promise<string> {
  const mayBeName = /^[A-Za-z0-9]/.test(source) && !existsSync(source);
  const entry = mayBeName ? findNamed(await listIfPossible(client), source) : undefined;
  return entry ? entry.public_key : readPublicKey(terminal, source, advice);
}

/** Empty when the book cannot be had: then the missing file is what there is to say. */
async function listIfPossible(client: Client): Promise<readonly BookKey[]> {
  try {
    return await client.listBookKeys();
  } catch (error) {
    if (error instanceof ApiError || error instanceof UnreachableError) return [];
    throw error;
  }
}

/** The one entry of that name; several may have it, and then it must be said which is meant. */
export function findNamed(keys: readonly BookKey[], name: string): BookKey | undefined {
  const [first, ...others] = keys.filter((key) => key.name === name);
  if (!first || others.length === 0) return first;
  const fingerprints = [first, ...others].map((key) => key.fingerprint).join(', ');
  throw new CliError(`Several entries are named "${name}": give one of ${fingerprints}.`);
}

/** For people: `unknown` would sound as if nobody could tell whether the key is there. */
export const presenceWord = (presence: InstanceKey['presence'] | KeyPlace['presence']): string =>
  presence === 'unknown' ? 'unrecorded' : (presence ?? '');
