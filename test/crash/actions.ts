/** For every kind of operation: what has to be there first, and the request that sets it going. */

import assert from 'node:assert/strict';
import { type Api, SMALL_INSTANCE } from '../support/client.ts';
import type { House, Machine } from '../support/house.ts';
import { makeKeyPair } from '../support/keys.ts';

export interface Action {
  readonly kind: string;
  readonly name: string;
  /** With the service sound. */
  prepare(house: House, main: Machine): Promise<void>;
  /** The request on the way to which, or after which, the process dies. */
  trigger(house: House, main: Machine): Promise<unknown>;
  /** The end, when the crash may not have prevented it: what is wrong, or undefined. */
  problem(house: House, main: Machine): Promise<string | undefined>;
}

const NAME = 'subject';

async function extraInstance(house: House, main: Machine): Promise<string> {
  const found = [...(await house.api.instances()).values()].find((one) => one.uuid !== main.uuid);
  return found?.uuid ?? '';
}

async function statusOf(api: Api, uuid: string): Promise<string> {
  const found = [...(await api.instances()).values()].find((one) => one.uuid === uuid);
  return found?.status ?? 'gone';
}

async function snapshotStatus(api: Api): Promise<string> {
  return (await api.snapshots()).find((one) => one.name === NAME)?.status ?? 'gone';
}

function expecting(seen: string, ...allowed: string[]): string | undefined {
  return allowed.includes(seen) ? undefined : `it is ${seen}, not ${allowed.join(' or ')}`;
}

const nothing = async (): Promise<void> => {};

async function makeSnapshot(house: House, main: Machine): Promise<void> {
  if ((await snapshotStatus(house.api)) === 'READY') return;
  await house.api.createSnapshot(main.uuid, NAME);
  await house.api.snapshotReady(NAME);
}

async function create(house: House, template: string): Promise<unknown> {
  const { publicKey } = await makeKeyPair(house.keyFolder);
  return house.api.createInstance({ ...SMALL_INSTANCE, template, public_key: publicKey });
}

async function extraIs(
  house: House,
  main: Machine,
  ...allowed: string[]
): Promise<string | undefined> {
  const extra = await extraInstance(house, main);
  return expecting(await statusOf(house.api, extra), ...allowed);
}

/** A port beside those for SSH, in the block that this process has claimed. */
const portOf = (house: House): number => house.service.sshPorts.to + 1;

/** All of a change or nothing of it, and the host as the API says. */
async function modifyProblem(house: House, main: Machine): Promise<string | undefined> {
  const { cpuCores, httpPorts } = await house.api.instance(main.uuid);
  const whole = cpuCores === '3' && httpPorts.join() === String(portOf(house));
  const none = cpuCores === '1' && httpPorts.length === 0;
  if (!whole && !none) return `a half change: ${cpuCores} cores, ports ${httpPorts}`;
  const open = await house.service.view.isPublished(portOf(house));
  return open === whole ? undefined : `the port is ${open ? 'open' : 'closed'}, not as it says`;
}

/** In a sound order: what one makes, another uses. */
export const ACTIONS: readonly Action[] = [
  {
    kind: 'instance.create',
    name: 'create from a template',
    prepare: nothing,
    trigger: (house) => create(house, 'base'),
    problem: (house, main) => extraIs(house, main, 'RUNNING', 'gone'),
  },
  {
    kind: 'instance.create',
    name: 'restore from a snapshot',
    prepare: makeSnapshot,
    trigger: (house) => create(house, NAME),
    problem: (house, main) => extraIs(house, main, 'RUNNING', 'gone'),
  },
  {
    kind: 'instance.start',
    name: 'start',
    prepare: async (house, main) => {
      await house.api.stopInstance(main.uuid);
      await house.api.reach(main.uuid, 'STOPPED', ['RUNNING', 'STOPPING']);
    },
    trigger: (house, main) => house.api.startInstance(main.uuid),
    problem: async (house, main) => expecting(await statusOf(house.api, main.uuid), 'RUNNING'),
  },
  {
    kind: 'instance.stop',
    name: 'stop',
    prepare: nothing,
    trigger: (house, main) => house.api.stopInstance(main.uuid),
    problem: async (house, main) => expecting(await statusOf(house.api, main.uuid), 'STOPPED'),
  },
  {
    kind: 'instance.delete',
    name: 'delete',
    prepare: async (house, main) => {
      if ((await extraInstance(house, main)) === '') await house.machine();
    },
    trigger: async (house, main) => house.api.deleteInstance(await extraInstance(house, main)),
    problem: (house, main) => extraIs(house, main, 'gone'),
  },
  {
    kind: 'snapshot.create',
    name: 'snapshot',
    prepare: async (house) => {
      const old = (await house.api.snapshots()).find((one) => one.name === NAME);
      if (old !== undefined) await house.api.deleteSnapshot(old.id);
    },
    trigger: (house, main) => house.api.createSnapshot(main.uuid, NAME),
    problem: async (house) => expecting(await snapshotStatus(house.api), 'READY', 'FAILED', 'gone'),
  },
  {
    kind: 'snapshot.delete',
    name: 'delete a snapshot',
    prepare: makeSnapshot,
    trigger: async (house) => {
      const found = (await house.api.snapshots()).find((one) => one.name === NAME);
      return house.api.deleteSnapshot(found?.id ?? '');
    },
    problem: async (house) => expecting(await snapshotStatus(house.api), 'gone'),
  },
  {
    kind: 'add_key',
    name: 'add a generated key',
    prepare: nothing,
    trigger: (house, main) => house.api.addKey(main.uuid),
    problem: async () => undefined,
  },
  {
    kind: 'modify',
    name: 'change a size and a port',
    prepare: async (house, main) => {
      const body = { cpu_cores: 1, remove_ports: [portOf(house)] };
      const answer = await house.api.call('POST', `/v1/instances/${main.uuid}/modify`, { body });
      assert.equal(answer.status, 200, answer.text);
    },
    trigger: (house, main) => {
      const body = { cpu_cores: 3, add_ports: [portOf(house)] };
      return house.api.call('POST', `/v1/instances/${main.uuid}/modify`, { body });
    },
    problem: modifyProblem,
  },
];
