import { type Client, createClient } from '../api/client.ts';
import { readLogin } from './config-file.ts';
import { CliError, exitCodes } from './exit-codes.ts';
import type { ClientFlags } from './options.ts';
import type { Terminal } from './terminal.ts';
import { trustCertificates } from './trust.ts';

export const defaultUrl = 'http://127.0.0.1:8080';

/** Where the service is, and the token for it if there is one. */
export interface Endpoint {
  readonly url: string;
  readonly token: string | undefined;
  /** File of the certificates to trust there, beside those of this machine. */
  readonly ca?: string;
}

/** Flag, then environment, then what `berth login` saved, then this machine. */
export async function findEndpoint(terminal: Terminal, flags: ClientFlags): Promise<Endpoint> {
  const { env } = terminal;
  const named = flags.url ?? (env.BERTH_URL || undefined);
  const given = env.BERTH_CA ? { ca: env.BERTH_CA } : {};
  // With both given, a damaged file is no reason to fail.
  if (named && env.BERTH_TOKEN) return { url: named, token: env.BERTH_TOKEN, ...given };
  const saved = await readLogin(env);
  const url = named ?? saved?.url ?? defaultUrl;
  // A saved token is for the service it was saved for: another one must not get to see it.
  const ofIt = saved && sameUrl(saved.url, url) ? saved : undefined;
  const ca = ofIt?.ca === undefined ? {} : { ca: ofIt.ca };
  return { url, token: env.BERTH_TOKEN || ofIt?.token, ...ca, ...given };
}

/** A client that is ready to use; fails when nobody has logged in. */
export async function connect(terminal: Terminal, flags: ClientFlags): Promise<Client> {
  const { url, token, ca } = await findEndpoint(terminal, flags);
  // First: who cannot use this URL must not be told to log in with it.
  checkUrl(url);
  if (token === undefined) {
    throw new CliError(`Not logged in: run berth login --url ${url}`, exitCodes.auth);
  }
  if (ca !== undefined) trustCertificates(ca);
  return clientFor(url, token);
}

/** The same for what wants no login; a token is sent when there is one. */
export async function connectOpenly(terminal: Terminal, flags: ClientFlags): Promise<Client> {
  const { url, token, ca } = await findEndpoint(terminal, flags);
  if (ca !== undefined) trustCertificates(ca);
  return clientFor(url, token);
}

/** Throws what `clientFor` throws, before there is a token. */
export function checkUrl(url: string): void {
  clientFor(url, undefined);
}

export function clientFor(url: string, token: string | undefined): Client {
  try {
    return createClient({ baseUrl: url, ...(token !== undefined && { token }) });
  } catch (error) {
    if (error instanceof TypeError) throw new CliError(error.message, exitCodes.usage);
    throw error;
  }
}

export const sameUrl = (one: string, other: string): boolean => trimmed(one) === trimmed(other);
const trimmed = (url: string): string => url.replace(/\/+$/, '');
