/** The settings of the Incus engine (docs/operations.md). */

import { accessSync, constants } from 'node:fs';
import { isIP } from 'node:net';
import { resolve } from 'node:path';
import type { Reader } from './config.ts';
import type { IncusOptions } from './engines/incus/options.ts';

/** What the engine is opened with, as far as settings say it. */
export interface IncusSettings extends Omit<IncusOptions, 'sshPorts' | 'log' | 'now'> {
  /** What becomes of running instances when the service ends. */
  readonly onExit: 'keep' | 'stop';
}

/** Where the packages of Debian and Ubuntu put it. */
const systemSocket = 'unix:/var/lib/incus/unix.socket';
const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

export function readIncus(read: Reader): IncusSettings {
  const endpoints = readEndpoints(read);
  const projectPerOrganization = read.flag('BERTH_INCUS_PROJECT_PER_ORGANIZATION');
  if (projectPerOrganization && read.given('BERTH_INCUS_PROJECT'))
    read.reject('BERTH_INCUS_PROJECT goes without BERTH_INCUS_PROJECT_PER_ORGANIZATION.');
  return {
    endpoints,
    tls: endpoints.some((one) => one.startsWith('https:')) ? readTls(read) : undefined,
    project: readName(read, 'BERTH_INCUS_PROJECT', 'default'),
    projectPerOrganization,
    pool: readName(read, 'BERTH_INCUS_POOL', 'berth'),
    network: readName(read, 'BERTH_INCUS_NETWORK', 'berthbr0'),
    listenAddress: readListenAddress(read),
    nvidiaRuntime: read.flag('BERTH_INCUS_NVIDIA_RUNTIME'),
    onExit: read.choice('BERTH_INCUS_ON_EXIT', ['keep', 'stop'], 'keep'),
  };
}

function readEndpoints(read: Reader): string[] {
  const text = read.text('BERTH_INCUS_URL', systemSocket);
  const all = text.split(/[\s,]+/).filter((one) => one !== '');
  const isSocket = all.length === 1 && /^unix:\/./.test(all[0] ?? '');
  if (isSocket || (all.length > 0 && all.every(isHttps))) return all;
  read.reject(
    `BERTH_INCUS_URL is "${text}", but must be unix:/PATH of one socket, or https://HOST:PORT of one or more members of a cluster, with commas between.`,
  );
  return [systemSocket];
}

const isHttps = (text: string): boolean =>
  text.startsWith('https://') && URL.canParse(text) && new URL(text).pathname === '/';

function readTls(read: Reader): NonNullable<IncusSettings['tls']> {
  const file = (name: string, what: string): string => {
    const path = read.text(name, '');
    if (path === '')
      read.reject(
        `${name} is not set, but BERTH_INCUS_URL is https: it names the file of ${what}.`,
      );
    else if (!isReadable(path)) read.reject(`${name} is "${path}", which cannot be read.`);
    return resolve(path);
  };
  return {
    certFile: file('BERTH_INCUS_CERT', "Berth's own client certificate, which the server trusts"),
    keyFile: file('BERTH_INCUS_KEY', 'the private key of that certificate'),
    serverCertFile: file('BERTH_INCUS_SERVER_CERT', "the server's certificate"),
  };
}

function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

function readName(read: Reader, name: string, fallback: string): string {
  const text = read.text(name, fallback);
  if (namePattern.test(text)) return text;
  read.reject(`${name} is "${text}", but must be the name of something in Incus.`);
  return fallback;
}

/** One address for SSH and published ports: what the sandbox has two settings for. */
function readListenAddress(read: Reader): string | undefined {
  const name = 'BERTH_INCUS_LISTEN_ADDRESS';
  if (!read.given(name)) return undefined;
  const text = read.text(name, '');
  const isOne = isIP(text) === 4 && text !== '0.0.0.0' && !text.startsWith('127.');
  if (!isOne)
    read.reject(`${name} is "${text}", but must be one IPv4 address of the host, not 127.0.0.1.`);
  return text;
}
