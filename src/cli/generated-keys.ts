import type { Client } from '../api/client.ts';
import type { AddKeyRequest, AddKeyResponse } from '../api/instance-keys.ts';
import { CliError } from './exit-codes.ts';
import { systemReason } from './input.ts';
import { fingerprintOfPrivateKey, type ReservedKeyFile } from './key-files.ts';

/**
 * Adds a generated key and saves its private half in `file`. When it cannot be saved, nobody will ever
 * hold it, so it is removed from the instance again. Nothing is left behind on failure.
 */
export async function addGeneratedKey(
  client: Client,
  instanceId: string,
  request: AddKeyRequest,
  file: ReservedKeyFile,
): Promise<AddKeyResponse> {
  const answer = await orDiscard(file, () => client.addKey(instanceId, request));
  try {
    await file.save(answer.key);
  } catch (error) {
    const outcome = await takeBack(client, answer.uuid, answer.key);
    throw new CliError(
      `The key cannot be saved in ${file.path}: ${systemReason(error)}. ${outcome}\n` +
        'Name another file with --output, or have the key printed with --print.',
    );
  }
  return answer;
}

/** What to say of a generated key that is in a file: the service's own sentence is for who sees the key. */
export function savedKeyLines(key: string, keyFile: string, instanceId: string): [string, string] {
  const fingerprint = fingerprintOfPrivateKey(key) ?? '';
  return [
    `A new key ${fingerprint} was added to instance ${instanceId}.`,
    `The private key is in ${keyFile}`,
  ];
}

/** Runs a request whose answer is for `file`; gives the file up when there is no answer. */
export async function orDiscard<T>(file: ReservedKeyFile, request: () => Promise<T>): Promise<T> {
  try {
    return await request();
  } catch (error) {
    await file.discard();
    throw error;
  }
}

/** Removes a key that could not be saved from its instance. Returns what came of it, for the user. */
export async function takeBack(client: Client, uuid: string, privateKey: string): Promise<string> {
  const fingerprint = fingerprintOfPrivateKey(privateKey) ?? '';
  try {
    await client.removeKey(uuid, fingerprint);
    return 'It was removed from the instance again.';
  } catch {
    return `It is of no use now; remove it with: berth key remove ${uuid} ${fingerprint}`;
  }
}
