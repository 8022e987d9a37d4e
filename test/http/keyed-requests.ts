/** The service, an instance, and requests with an `Idempotency-Key` to it. */

import assert from 'node:assert/strict';
import { KeptAnswerService } from '../../src/services/kept-answers.ts';
import { smallest } from '../services/workshop.ts';
import { serve } from './served.ts';

export const publicKey =
  'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ test';

export interface Got {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly replayed: boolean;
}

export interface SendOptions {
  readonly key?: string;
  readonly body?: unknown;
  /** Sent as it stands, instead of `body`. */
  readonly raw?: string;
  /** Another token. */
  readonly as?: string;
  readonly method?: string;
}

let count = 0;

export function newKey(): string {
  count += 1;
  return `key-${count}`;
}

export async function openKeyed(ports: { from: number; to: number }) {
  const served = await serve(ports);
  const token = await served.newToken();
  const { shop } = served;
  const machine = (await shop.instances.create(shop.actor, { ...smallest, publicKey })).uuid;
  await shop.settle();

  async function send(path: string, options: SendOptions = {}): Promise<Got> {
    const json = options.body === undefined ? '' : JSON.stringify(options.body);
    const body = options.raw ?? json;
    const answer = await fetch(`${served.url}${path}`, {
      method: options.method ?? 'POST',
      headers: {
        authorization: `Bearer ${options.as ?? token}`,
        ...(options.key === undefined ? {} : { 'idempotency-key': options.key }),
        ...(body ? { 'content-type': 'application/json' } : {}),
      },
      ...(body ? { body } : {}),
    });
    const replayed = answer.headers.get('idempotency-replayed') === 'true';
    return { status: answer.status, headers: answer.headers, text: await answer.text(), replayed };
  }

  return {
    ...{ served, token, machine, send, close: served.close },
    addKey: (options: SendOptions = {}) => send(`/v1/instances/${machine}/add_key`, options),
    keyLines: async () =>
      (await shop.engine.readKeys(machine)).split('\n').filter((line) => line !== '').length,
    rows: () => shop.store.db.selectFrom('kept_answers').selectAll().execute(),
    /** Takes a key the way a request without a body does, and leaves it open. */
    begin: async (key: string, path: string) => {
      const actor = await served.tokens.authenticate(token, 'test');
      const service = new KeptAnswerService(shop.context, 'another node');
      return service.begin(actor, { token, key, method: 'POST', path, body: Buffer.alloc(0) });
    },
  };
}

/** The same status, headers and bytes; only what belongs to the exchange differs. */
export function assertSameAnswer(first: Got, again: Got): void {
  assert.equal(again.replayed, true, 'it says so');
  assert.equal(first.replayed, false);
  assert.equal(again.status, first.status);
  assert.equal(again.text, first.text);
  for (const name of ['content-type', 'content-length', 'cache-control']) {
    assert.equal(again.headers.get(name), first.headers.get(name), name);
  }
  assert.notEqual(again.headers.get('x-request-id'), first.headers.get('x-request-id'));
}
