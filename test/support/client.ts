/** A strict client of the service, written from the wire contract alone. */

import assert from 'node:assert/strict';
import {
  type AddedKey,
  addedKey,
  createdInstance,
  type Instance,
  type InstanceStatus,
  instance,
  instanceKeys,
  instanceMap,
  message,
  newToken,
  type Snapshot,
  snapshots,
  tokens,
  validated,
} from './contract.ts';
import { type Answer, ask, checkErrorBody, checkJsonType, type ErrorBody } from './http.ts';
import { decode } from './json.ts';
import type { Parser } from './shape.ts';
import { eventually } from './waiting.ts';

const SETTLE_MS = 60_000;

export interface CallOptions {
  readonly body?: unknown;
  /** Sent as it stands, instead of `body`. */
  readonly rawBody?: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface NewInstance {
  readonly cpu_cores: number;
  readonly disk_size_gb: number;
  readonly gpu_type: string;
  readonly mode: string;
  readonly num_gpus: number;
  readonly template: string;
  readonly public_key?: string;
}

export const SMALL_INSTANCE: NewInstance = {
  cpu_cores: 1,
  disk_size_gb: 10,
  gpu_type: 'cpu',
  mode: 'prototyping',
  num_gpus: 1,
  template: 'base',
};

export class Api {
  readonly token: string;
  private readonly baseUrl: () => string;

  constructor(baseUrl: () => string, token: string) {
    this.baseUrl = baseUrl;
    this.token = token;
  }

  get url(): string {
    return this.baseUrl();
  }

  /** Any call with this client's token; the rules for every answer are checked, the status is not. */
  call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const json = options.body === undefined ? undefined : JSON.stringify(options.body);
    const body = options.rawBody ?? json;
    return ask(this.baseUrl(), {
      method,
      path,
      headers: {
        authorization: `Bearer ${this.token}`,
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
        ...options.headers,
      },
      ...(body === undefined ? {} : { body }),
    });
  }

  /** A call that has to succeed with this status and this body. */
  async expect<T>(
    status: number,
    parser: Parser<T>,
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<T> {
    const answer = await this.call(method, path, options);
    assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
    checkJsonType(answer);
    return decode(parser, answer.text, `${method} ${path}`);
  }

  /** A call that has to be refused with this status. */
  async refused(
    status: number,
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<ErrorBody> {
    const answer = await this.call(method, path, options);
    assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
    return checkErrorBody(status, answer.text);
  }

  createInstance(wanted: NewInstance): Promise<ReturnType<typeof createdInstance>> {
    return this.expect(201, createdInstance, 'POST', '/v1/instances/create', { body: wanted });
  }

  async instances(): Promise<Map<string, Instance>> {
    const found = await this.expect(200, instanceMap, 'GET', '/v1/instances/list');
    for (const [id, one] of found) assert.equal(one.id, id, 'the key repeats the id');
    return found;
  }

  instance(id: string): Promise<Instance> {
    return this.expect(200, instance, 'GET', `/v1/instances/${id}`);
  }

  deleteInstance(id: string): Promise<unknown> {
    return this.expect(200, message, 'POST', `/v1/instances/${id}/delete`);
  }

  startInstance(id: string): Promise<unknown> {
    return this.expect(200, message, 'POST', `/v1/instances/${id}/start`);
  }

  stopInstance(id: string): Promise<unknown> {
    return this.expect(200, message, 'POST', `/v1/instances/${id}/stop`);
  }

  /** Waits for a status; every status seen on the way has to be one of `onTheWay`. */
  reach(
    id: string,
    wanted: InstanceStatus,
    onTheWay: readonly InstanceStatus[],
  ): Promise<Instance> {
    return eventually(`instance ${id} ${wanted}`, SETTLE_MS, async () => {
      const found = await this.instance(id);
      if (found.status === wanted) return found;
      assert.ok(onTheWay.includes(found.status), `${found.status}: ${found.failure}`);
      return undefined;
    });
  }

  /** Waits for an instance to be gone. */
  gone(id: string): Promise<true> {
    return eventually(`instance ${id} gone`, SETTLE_MS, async () => {
      const answer = await this.call('GET', `/v1/instances/${id}`);
      return answer.status === 404 ? true : undefined;
    });
  }

  /** Adds a key; no `body` means a request without any body. */
  async addKey(id: string, body?: unknown): Promise<AddedKey> {
    const answer = await this.call('POST', `/v1/instances/${id}/add_key`, { body });
    return checkAddedKey(answer);
  }

  keys(id: string): Promise<ReturnType<typeof instanceKeys>> {
    return this.expect(200, instanceKeys, 'GET', `/v1/instances/${id}/keys`);
  }

  snapshots(): Promise<Snapshot[]> {
    return this.expect(200, snapshots, 'GET', '/v1/snapshots/list');
  }

  createSnapshot(instanceId: string, name: string): Promise<unknown> {
    const body = { instanceId, name };
    return this.expect(202, message, 'POST', '/v1/snapshots/create', { body });
  }

  async deleteSnapshot(id: string): Promise<void> {
    const answer = await this.call('DELETE', `/v1/snapshots/${id}`);
    assert.equal(answer.status, 204, answer.text);
  }

  /** Waits until the snapshot of this name is READY. */
  snapshotReady(name: string): Promise<Snapshot> {
    return eventually(`snapshot ${name} READY`, SETTLE_MS, async () => {
      const found = (await this.snapshots()).find((one) => one.name === name);
      assert.ok(found !== undefined, `snapshot ${name} is listed from the start`);
      return found.status === 'READY' ? found : undefined;
    });
  }

  validate(): Promise<ReturnType<typeof validated>> {
    return this.expect(200, validated, 'GET', '/v1/auth/validate');
  }

  async createToken(name: string): Promise<string> {
    const body = { name };
    return (await this.expect(200, newToken, 'POST', '/v1/token/create', { body })).token;
  }

  tokens(): Promise<ReturnType<typeof tokens>> {
    return this.expect(200, tokens, 'GET', '/v1/tokens');
  }

  deleteToken(name: string): Promise<unknown> {
    return this.expect(200, message, 'DELETE', '/v1/token/delete', { body: { name } });
  }
}

/** What the contract says of a successful answer to "add key". */
export function checkAddedKey(answer: Answer): AddedKey {
  assert.equal(answer.status, 200, answer.text);
  checkJsonType(answer);
  assert.equal(answer.headers['cache-control'], 'no-store');
  const added = decode(addedKey, answer.text, 'add_key');
  if (added.key === '') return added;
  assert.match(added.key, /^-----BEGIN OPENSSH PRIVATE KEY-----\n/);
  assert.ok(added.key.endsWith('-----END OPENSSH PRIVATE KEY-----\n'), 'it ends in a newline');
  return added;
}
