/**
 * Private keys on this machine.
 *
 * A key is shown once, so its file is made before the request is sent: a folder that cannot be written
 * to or a name that is taken shows while nothing has happened yet. Files are made with O_EXCL and never
 * overwritten. In the folder of saved keys the name says what a key is for: the UUID of the instance,
 * `-2`, `-3` and so on for further keys, and `.until-SECONDS` (Unix epoch) for one that ends by itself.
 */

import { rmSync } from 'node:fs';
import { type FileHandle, link, mkdir, open, readdir, readFile, unlink } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { fingerprintOf } from '../domain/ssh-public-key.ts';
import { CliError } from './exit-codes.ts';
import { systemReason } from './input.ts';

/** A file that is there, empty, and waits for its key. */
export interface ReservedKeyFile {
  readonly path: string;
  /** Written and flushed when this resolves. Throws what the system said; the file is gone then. */
  save(privateKey: string): Promise<void>;
  /** Removes the file again. */
  discard(): Promise<void>;
}

/** At exactly this path. */
export async function reserveKeyFile(path: string): Promise<ReservedKeyFile> {
  const absolutePath = resolve(path);
  const file = await openNew(absolutePath);
  if (file) return reserved(absolutePath, file);
  throw new CliError(
    `${path} exists already and is never overwritten. Name another with --output.`,
  );
}

/** In the folder of saved keys, which is made when it is not there. */
export async function reserveSavedKey(
  directory: string,
  instanceUuid: string,
  endsAtSeconds?: number,
): Promise<ReservedKeyFile> {
  await makeDirectory(directory);
  for (let number = 1; ; number += 1) {
    const path = join(directory, savedKeyName(instanceUuid, number, endsAtSeconds));
    const file = await openNew(path);
    if (file) return reserved(path, file);
  }
}

export function savedKeyName(uuid: string, number: number, endsAtSeconds?: number): string {
  const ending = endsAtSeconds === undefined ? '' : `.until-${endsAtSeconds}`;
  return `${uuid}${number === 1 ? '' : `-${number}`}${ending}`;
}

/**
 * Gives the key of a new instance, saved before its UUID was known, the name under which `ssh` looks for
 * it. Where that cannot be done the key stays where it is. Returns where that is.
 */
export async function nameSavedKey(path: string, instanceUuid: string): Promise<string> {
  const namedPath = join(dirname(path), savedKeyName(instanceUuid, 1));
  try {
    // A link fails when the name is taken; a rename would overwrite.
    await link(path, namedPath);
    await unlink(path);
    return namedPath;
  } catch {
    return path;
  }
}

/** The same for a further key, which takes the first name that is free. */
export async function nameAddedKey(
  path: string,
  instanceUuid: string,
  endsAtSeconds?: number,
): Promise<string> {
  for (let number = 1; ; number += 1) {
    const name = savedKeyName(instanceUuid, number, endsAtSeconds);
    const namedPath = join(dirname(path), name);
    try {
      await link(path, namedPath);
      await unlink(path);
      return namedPath;
    } catch (error) {
      if (!isTaken(error)) return path;
    }
  }
}

export interface SavedKey {
  readonly path: string;
  readonly fingerprint: string;
}

/** Those of one instance that have not ended; without what is not a private key. */
export async function findSavedKeys(
  directory: string,
  instanceUuid: string,
  nowSeconds: number,
): Promise<SavedKey[]> {
  const names = await readdir(directory).catch(() => []);
  const usable = names.filter((name) => isUsableKeyName(name, instanceUuid, nowSeconds)).sort();
  const keys = await Promise.all(usable.map((name) => readSavedKey(join(directory, name))));
  return keys.filter((key) => key !== undefined);
}

export function isUsableKeyName(name: string, uuid: string, nowSeconds: number): boolean {
  if (!name.startsWith(uuid)) return false;
  const match = /^(?:-[0-9]+)?(?:\.until-([0-9]+))?$/.exec(name.slice(uuid.length));
  return match !== null && (match[1] === undefined || Number(match[1]) > nowSeconds);
}

/** Of one instance, those that have ended included. Returns what is gone now. */
export async function removeSavedKeys(directory: string, instanceUuid: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  const saved = names.filter((name) => isUsableKeyName(name, instanceUuid, 0)).sort();
  const removed = saved.map(async (name) => {
    const path = join(directory, name);
    return unlink(path).then(
      () => path,
      () => undefined,
    );
  });
  return (await Promise.all(removed)).filter((path) => path !== undefined);
}

async function readSavedKey(path: string): Promise<SavedKey | undefined> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const fingerprint = fingerprintOfPrivateKey(text);
  return fingerprint === undefined ? undefined : { path, fingerprint };
}

const magic = 'openssh-key-v1\0';

/** From the public half that OpenSSH's format keeps in the clear (PROTOCOL.key); undefined for another format. */
export function fingerprintOfPrivateKey(text: string): string | undefined {
  const match = /-----BEGIN OPENSSH PRIVATE KEY-----([\s\S]+?)-----END/.exec(text);
  const bytes = Buffer.from(match?.[1] ?? '', 'base64');
  if (bytes.toString('latin1', 0, magic.length) !== magic) return undefined;
  let offset = magic.length;
  try {
    // Cipher, key derivation and its options: strings of RFC 4251; then the number of keys.
    for (let field = 0; field < 3; field += 1) offset += 4 + bytes.readUInt32BE(offset);
    const start = offset + 8;
    const end = start + bytes.readUInt32BE(offset + 4);
    return end > bytes.length ? undefined : fingerprintOf(bytes.subarray(start, end));
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

async function makeDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new CliError(`${directory} cannot be made: ${systemReason(error)}.`);
  }
}

const isTaken = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'EEXIST';

/** Undefined when the name is taken. */
async function openNew(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'wx', 0o600);
  } catch (error) {
    if (isTaken(error)) return undefined;
    const advice = 'Name another file with --output.';
    throw new CliError(`The key cannot be saved in ${path}: ${systemReason(error)}. ${advice}`);
  }
}

function reserved(path: string, file: FileHandle): ReservedKeyFile {
  const stopWatching = unlinkOnSignal(path);
  const discard = async () => {
    stopWatching();
    await file.close().catch(() => undefined);
    await unlink(path).catch(() => undefined);
  };
  const save = async (privateKey: string) => {
    stopWatching();
    try {
      await file.writeFile(privateKey);
      await file.sync();
      await file.close();
    } catch (error) {
      await discard();
      throw error;
    }
  };
  return { path, save, discard };
}

/** Somebody who gives up while waiting for the answer finds no empty file in the way of the next try. */
function unlinkOnSignal(path: string): () => void {
  const onSignal = (signal: NodeJS.Signals) => {
    rmSync(path, { force: true });
    stop();
    process.kill(process.pid, signal);
  };
  const stop = () => {
    process.off('SIGINT', onSignal);
    process.off('SIGTERM', onSignal);
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  return stop;
}
