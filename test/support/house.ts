/** A running service with its first organization: what most tests begin with. */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Api, type NewInstance, SMALL_INSTANCE } from './client.ts';
import type { Instance, InstanceStatus } from './contract.ts';
import { exchange } from './http.ts';
import { makeKeyPair } from './keys.ts';
import { Service, type ServiceOptions } from './service.ts';
import type { Login } from './ssh.ts';

export interface Machine {
  readonly id: string;
  readonly uuid: string;
  readonly keyFile: string;
  readonly publicKey: string;
  /** How to log in with the key it was created with. */
  readonly login: Login;
}

export const WAY_UP: readonly InstanceStatus[] = ['PROVISIONING', 'STARTING'];
export const RESTORE_WAY_UP: readonly InstanceStatus[] = ['RESTORING', 'STARTING'];

export function loginTo(found: Instance, keyFile: string): Login {
  assert.ok(found.ip !== undefined && found.port !== undefined, 'ip and port are set by then');
  return { host: found.ip, port: found.port, keyFile };
}

export class House {
  readonly service: Service;
  /** Where the tests keep their keys; never inside the data folder. */
  readonly keyFolder: string;
  /** Why logins cannot be tried on this host; false where they can. Made for `{ skip }`. */
  readonly skipLogins: string | false;
  readonly api: Api;

  constructor(service: Service, keyFolder: string, skipLogins: string | false, token: string) {
    this.service = service;
    this.keyFolder = keyFolder;
    this.skipLogins = skipLogins;
    this.api = new Api(() => service.baseUrl, token);
  }

  /** A client of a new organization of its own. */
  async tenant(name: string): Promise<Api> {
    return new Api(() => this.service.baseUrl, await newTenantToken(this.service, name));
  }

  /** A running instance that was created with a key of ours. */
  async machine(wanted: Partial<NewInstance> = {}, api: Api = this.api): Promise<Machine> {
    const pair = await makeKeyPair(this.keyFolder);
    const body = { ...SMALL_INSTANCE, public_key: pair.publicKey, ...wanted };
    const created = await api.createInstance(body);
    assert.equal(created.key, '');
    const onTheWay = [...WAY_UP, ...RESTORE_WAY_UP];
    const running = await api.reach(created.uuid, 'RUNNING', onTheWay);
    const login = loginTo(running, pair.keyFile);
    return { id: running.id, uuid: running.uuid, ...pair, login };
  }

  async dispose(): Promise<void> {
    await this.service.dispose();
  }
}

export async function newTenantToken(service: Service, name: string): Promise<string> {
  await service.command(['admin', 'org', 'create', name, '--email', `${name}@example.com`]);
  const words = ['admin', 'token', 'create', '--org', name, '--name', 'first'];
  const token = (await service.command(words)).trimEnd();
  assert.match(token, /^berth_\S{40,}$/, 'the token alone on stdout');
  return token;
}

/** What /readyz says about shells: a reason to skip logins, or false. */
async function reasonToSkipLogins(service: Service): Promise<string | false> {
  const { text } = await exchange(service.baseUrl, { method: 'GET', path: '/readyz' });
  if (!/"shells":\s*false/.test(text)) return false;
  return `this host permits no isolation, so instances give no shells: ${text}`;
}

export async function openHouse(options: ServiceOptions = {}): Promise<House> {
  const service = await Service.prepare(options);
  try {
    await service.start();
    const keyFolder = join(service.folder, 'keys');
    mkdirSync(keyFolder, { mode: 0o700 });
    const skipLogins = await reasonToSkipLogins(service);
    if (skipLogins !== false) console.error(`SKIPPING LOGINS: ${skipLogins}`);
    return new House(service, keyFolder, skipLogins, await newTenantToken(service, 'acme'));
  } catch (error) {
    console.error(await service.logTail());
    await service.dispose();
    throw error;
  }
}
