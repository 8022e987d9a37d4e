/** What the files of this engine share. */

import { EngineError } from '../engine.ts';
import { IncusClient } from './client.ts';
import { GuestExec } from './exec.ts';
import { Forwards } from './forwards.ts';
import type { Bridge } from './guest-address.ts';
import { GuestKeys } from './guest-keys.ts';
import { isIncusError } from './incus-error.ts';
import { Members } from './members.ts';
import { instancePath, type Place } from './names.ts';
import { isolateGuests, readBridge } from './network.ts';
import { find, type InstanceObject } from './objects.ts';
import type { IncusOptions } from './options.ts';
import { Overview } from './overview.ts';
import { Places } from './places.ts';

const isolationAgeMs = 60_000;
const publishedAgeMs = 1_000;

export interface Parts {
  readonly client: IncusClient;
  readonly options: IncusOptions;
  readonly places: Places;
  readonly overview: Overview;
  readonly members: Members;
  readonly forwards: Forwards;
  readonly exec: GuestExec;
  readonly keys: GuestKeys;
  /** The bridge that guests are on, read once. */
  bridge(): Promise<Bridge>;
  /** Resolves when it is known what is published, and guests are shut off from the host; to be awaited before use. */
  ready(): Promise<void>;
  /** Shuts guests off from addresses that the hosts got since; returns at once. */
  keepIsolated(): void;
  /** Publishes what others took back; returns at once. */
  keepPublished(): void;
  close(): void;
}

export function openParts(options: IncusOptions): Parts {
  const client = new IncusClient(options);
  const members = new Members(client, options);
  const overview = new Overview(client, members, options);
  const forwards = new Forwards(client, options);
  const exec = new GuestExec(client);
  const bridge = once(() => readBridge(client, options.network));
  const ready = once(async () => {
    await Promise.all([overview.refresh(), forwards.load(), bridge()]);
    await isolateGuests(client, options.network);
  });
  const isolate = atMostEvery(isolationAgeMs, async () => {
    if (await isolateGuests(client, options.network))
      options.log('info', 'guests were shut off from the host anew');
  });
  const isLost = (member: string) =>
    overview.last.hosts.some(({ name, online }) => name === member && !online);
  const heal = atMostEvery(publishedAgeMs, () => forwards.heal(isLost));
  return {
    client,
    options,
    keepPublished: () => {
      heal().catch((error: unknown) => {
        options.log('warn', 'published ports could not be looked at', { err: error });
      });
    },
    keepIsolated: () => {
      isolate().catch((error: unknown) => {
        options.log('warn', 'guests may reach addresses of the host that are new', { err: error });
      });
    },
    overview,
    members,
    forwards,
    bridge,
    ready,
    places: new Places(client, members, options),
    exec,
    keys: new GuestKeys(client, exec, options.log, options.now ?? (() => new Date())),
    close: () => {
      members.close();
      client.close();
    },
  };
}

/** Does nothing when it was called less than so long ago. */
function atMostEvery(ms: number, work: () => Promise<void>): () => Promise<void> {
  let lastAt = performance.now();
  return async () => {
    if (performance.now() - lastAt < ms) return;
    lastAt = performance.now();
    await work();
  };
}

/** Runs until it has succeeded once. */
function once<T>(work: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  return () => {
    result ??= work().catch((error: unknown) => {
      result = undefined;
      throw error;
    });
    return result;
  };
}

/**
 * Runs a change; when it fails or nobody knows how it ended, the object itself says whether it is as it should be.
 * An operation may have been lost, and a second try may fail because the first one did its work.
 */
export async function settle(
  { client }: Pick<Parts, 'client'>,
  place: Place,
  change: () => Promise<unknown>,
  isDone: (object: InstanceObject | undefined) => boolean,
): Promise<void> {
  try {
    await change();
  } catch (error) {
    if (error instanceof EngineError || isIncusError(error, 'unreachable')) throw error;
    const object = await find(client, place).catch(() => {
      throw error;
    });
    if (!isDone(object)) throw error;
  }
}

export const statePath = (place: Place): string => `${instancePath(place)}/state`;
