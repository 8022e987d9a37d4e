/** What the engine itself has of one service, past the service: for tests that hold what the API says against it. */

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { IncusPlace } from './incus.ts';
import { isFree } from './ports.ts';
import { endSandboxes, livingSandboxes, sandboxProcesses } from './processes.ts';

export interface Held {
  readonly instances: readonly string[];
  readonly snapshots: readonly string[];
  /** What is under way, or was left half-way. */
  readonly halfMade: readonly string[];
}

export interface EngineView {
  /** UUID of an instance -> how many times it runs, which should be once. */
  running(): Promise<ReadonlyMap<string, number>>;
  /** Nothing runs, not even a part of an instance. */
  isAtRest(): Promise<boolean>;
  held(): Promise<Held>;
  /** Does this port of the host lead into an instance? */
  isPublished(port: number): Promise<boolean>;
  /** UUID of an instance -> ports that lead to it; undefined where only the service knows whose they are. */
  published(): Promise<ReadonlyMap<string, readonly number[]> | undefined>;
  /** Ends all instances from outside, as a crash would. */
  kill(): Promise<void>;
}

function names(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder).sort() : [];
}

export function sandboxView(dataFolder: string): EngineView {
  const folder = (name: string): string => join(dataFolder, 'sandbox', name);
  return {
    running: async () =>
      new Map([...livingSandboxes(dataFolder)].map(([uuid, spaces]) => [uuid, spaces.size])),
    isAtRest: async () => sandboxProcesses(dataFolder).length === 0,
    held: async () => ({
      instances: names(folder('instances')),
      snapshots: names(folder('snapshots')),
      halfMade: names(folder('work')),
    }),
    isPublished: async (port) => !(await isFree(port)),
    published: async () => undefined,
    kill: async () => endSandboxes(dataFolder),
  };
}

interface Listed {
  readonly name: string;
  readonly status: string;
}

interface ForwardObject {
  readonly ports: readonly { readonly description: string; readonly listen_port: string }[] | null;
}

const INSTANCE = 'berth-i-';
const SNAPSHOT = 'berth-s-';

function after(prefix: string, found: readonly Listed[]): string[] {
  const fitting = found.filter(({ name }) => name.startsWith(prefix));
  return fitting.map(({ name }) => name.slice(prefix.length)).sort();
}

export function incusView({ client, project, network }: IncusPlace): EngineView {
  const options = { project, timeoutMs: 60_000 };
  const list = () => client.get<Listed[]>('/1.0/instances', { project, query: { recursion: '1' } });
  const running = async () => (await list()).filter(({ status }) => status !== 'Stopped');
  const path = ({ name }: Listed): string => `/1.0/instances/${name}`;
  const published = async () => {
    const query = { recursion: '1' };
    const found = await client.get<ForwardObject[]>(`/1.0/networks/${network}/forwards`, { query });
    const ports = found.flatMap((forward) => forward.ports ?? []);
    return Map.groupBy(ports, ({ description }) => description.replace(/^berth:/, ''));
  };
  return {
    isPublished: async (port) =>
      [...(await published()).values()].flat().some((one) => one.listen_port === String(port)),
    published: async () => {
      const entries = [...(await published())];
      return new Map(
        entries.map(([uuid, all]) => [uuid, all.map((one) => Number(one.listen_port)).sort()]),
      );
    },
    running: async () => new Map(after(INSTANCE, await running()).map((uuid) => [uuid, 1])),
    isAtRest: async () => (await running()).length === 0,
    held: async () => {
      const all = await list();
      const [instances, snapshots] = [after(INSTANCE, all), after(SNAPSHOT, all)];
      const known = ({ name }: Listed) => name.startsWith(INSTANCE) || name.startsWith(SNAPSHOT);
      const below = await Promise.all(
        all.map((one) => client.get<string[]>(`${path(one)}/snapshots`, options)),
      );
      const strange = all.filter((one) => !known(one)).map(path);
      return { instances, snapshots, halfMade: [...strange, ...below.flat()] };
    },
    kill: async () => {
      const stop = { action: 'stop', force: true, timeout: 20 };
      for (const one of await running())
        await client.change('PUT', `${path(one)}/state`, stop, options);
    },
  };
}
