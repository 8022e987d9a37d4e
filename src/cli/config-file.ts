import { randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename, unlink } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { CliError } from './exit-codes.ts';
import { systemReason } from './input.ts';
import type { Terminal } from './terminal.ts';

/** What `berth login` leaves behind. */
export interface SavedLogin {
  readonly url: string;
  readonly token: string;
  /** File of the certificates to trust there. */
  readonly ca?: string;
}

type Environment = Terminal['env'];

export const configPath = (env: Environment): string =>
  join(baseDirectory(env, 'XDG_CONFIG_HOME', '.config'), 'berth', 'config.json');

export const keysDirectory = (env: Environment): string =>
  join(baseDirectory(env, 'XDG_DATA_HOME', join('.local', 'share')), 'berth', 'keys');

/** The folder of the service's data, as the service itself reads its setting. */
export const dataFolder = (env: Environment): string => resolve(env.BERTH_DATA || '.berth');

/** XDG Base Directory Specification 0.8: a relative path counts as not set. */
function baseDirectory(env: Environment, variable: string, fallback: string): string {
  const value = env[variable];
  return value && isAbsolute(value) ? value : join(env.HOME || homedir(), fallback);
}

export async function readLogin(env: Environment): Promise<SavedLogin | undefined> {
  const path = configPath(env);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw new CliError(`${path} cannot be read: ${systemReason(error)}.`);
  }
  const login = parseLogin(text);
  if (login) return login;
  throw new CliError(`${path} is damaged. Delete it and log in again with: berth login`);
}

function parseLogin(text: string): SavedLogin | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const { url, token, ca } = Object(value) as Record<string, unknown>;
    if (typeof url !== 'string' || typeof token !== 'string') return undefined;
    return typeof ca === 'string' ? { url, token, ca } : { url, token };
  } catch {
    return undefined;
  }
}

/** Whole or not at all, and readable by its owner alone. Returns where it is. */
export async function saveLogin(env: Environment, login: SavedLogin): Promise<string> {
  const path = configPath(env);
  const temporaryPath = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFlushed(temporaryPath, `${JSON.stringify(login, undefined, 2)}\n`);
    await rename(temporaryPath, path);
  } catch (error) {
    await unlink(temporaryPath).catch(() => undefined);
    throw new CliError(`The login cannot be saved in ${path}: ${systemReason(error)}.`);
  }
  return path;
}

/** Returns where it was. */
export async function removeLogin(env: Environment): Promise<string> {
  const path = configPath(env);
  try {
    await unlink(path);
  } catch (error) {
    throw new CliError(`${path} cannot be deleted: ${systemReason(error)}.`);
  }
  return path;
}

async function writeFlushed(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
