/** One service whose Incus dies again and again, with the instance that has to survive it. */

import assert from 'node:assert/strict';
import type { AddedKey } from '../support/contract.ts';
import { type House, type Machine, openHouse } from '../support/house.ts';
import type { IncusServer } from '../support/incus.ts';
import { keyFileLines } from '../support/key-file.ts';
import { makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import { eventuallyPasses } from '../support/waiting.ts';
import { ACTIONS, type Action } from './actions.ts';
import {
  type Acknowledged,
  assertKeysKept,
  assertNoPrivateKeys,
  type Settled,
  settled,
} from './aftermath.ts';
import { incusObject } from './incus-objects.ts';

/** Incus starts again, and what failed meanwhile is tried again with growing pauses. */
const SETTLE_MS = 60_000;
const TAKEN_BACK_MS = 30_000;

const SUPPLY = 'add a supplied key';

const addSupplied: Action = {
  kind: 'add_key',
  name: SUPPLY,
  prepare: async () => {},
  trigger: async ({ api, keyFolder }, { uuid }) => {
    const pair = await makeKeyPair(keyFolder);
    await api.addKey(uuid, { public_key: pair.publicKey });
    return pair;
  },
  problem: async () => undefined,
};

/** What incusd is killed during. */
export const DURING: readonly Action[] = [...ACTIONS, addSupplied];

export class DaemonLane {
  readonly house: House;
  readonly main: Machine;
  private linesBefore: readonly string[] = [];
  private added: Acknowledged[] = [];

  private constructor(house: House, main: Machine) {
    this.house = house;
    this.main = main;
  }

  static async open(incus: IncusServer): Promise<DaemonLane> {
    const house = await openHouse({ incus });
    try {
      return new DaemonLane(house, await house.machine());
    } catch (error) {
      await house.dispose();
      throw error;
    }
  }

  async prepare(action: Action): Promise<void> {
    await settled(this.house, SETTLE_MS);
    await this.startMain();
    await action.prepare(this.house, this.main);
    const { status } = await this.house.api.instance(this.main.uuid);
    this.linesBefore = status === 'RUNNING' ? await keyFileLines(this.main.login) : [];
    this.added = [];
  }

  /** The request, which succeeds or is refused with one of these statuses. */
  async ask(action: Action, refusals: readonly number[]): Promise<void> {
    try {
      const answer = await action.trigger(this.house, this.main);
      if (action.kind === 'add_key') this.added.push(await this.acknowledged(action, answer));
    } catch (error) {
      const isRefusal =
        error instanceof assert.AssertionError &&
        refusals.some((code) => error.message.includes(`"code":${code}`));
      if (!isRefusal) throw error;
    }
  }

  private async acknowledged(action: Action, answer: unknown): Promise<Acknowledged> {
    const { uuid } = this.main;
    if (action.name === SUPPLY) return { uuid, ...(answer as Omit<Acknowledged, 'uuid'>) };
    const keyFile = saveKey(this.house.keyFolder, (answer as AddedKey).key);
    return { uuid, keyFile, publicKey: await publicHalf(keyFile) };
  }

  /** All is done that was accepted, nothing is left of what was refused, and the next action can come. */
  async check(action: Action): Promise<void> {
    const state = await settled(this.house, SETTLE_MS);
    assert.equal(await action.problem(this.house, this.main), undefined);
    for (const one of state.instances)
      assert.notEqual(one.status, 'UNKNOWN', `${one.id}: ${one.failure}`);
    for (const one of state.snapshots) assert.equal(one.status, 'READY', one.name);
    await this.startMain();
    await this.assertSizes();
    await this.assertKeys();
    assertNoPrivateKeys(this.house);
    await this.tidy(state);
  }

  private async startMain(): Promise<void> {
    const { api } = this.house;
    if ((await api.instance(this.main.uuid)).status !== 'STOPPED') return;
    await api.startInstance(this.main.uuid);
    await api.reach(this.main.uuid, 'RUNNING', ['STOPPED', 'STARTING']);
  }

  /** In Incus as in the API. */
  private async assertSizes(): Promise<void> {
    await eventuallyPasses(SETTLE_MS, async () => {
      const { cpuCores } = await this.house.api.instance(this.main.uuid);
      const { config } = await incusObject(this.house, this.main.uuid);
      assert.equal(config['limits.cpu'], cpuCores);
    });
  }

  private async assertKeys(): Promise<void> {
    const before = this.linesBefore.length > 0 ? this.linesBefore : [this.main.publicKey];
    await eventuallyPasses(TAKEN_BACK_MS, async () => {
      const lines = await keyFileLines(this.main.login);
      for (const line of before) assert.ok(lines.includes(line), `this line is lost: ${line}`);
      if (this.linesBefore.length > 0)
        assert.equal(lines.length, before.length + this.added.length, lines.join('\n'));
    });
    await assertKeysKept(this.house, this.main, [
      { uuid: this.main.uuid, keyFile: this.main.keyFile, publicKey: this.main.publicKey },
      ...this.added,
    ]);
  }

  /** Leaves the main instance and its snapshot. */
  private async tidy(state: Settled): Promise<void> {
    const { api } = this.house;
    const extras = state.instances.filter((one) => one.uuid !== this.main.uuid);
    for (const one of extras) await api.deleteInstance(one.uuid);
    for (const one of extras) await api.gone(one.uuid);
  }
}
