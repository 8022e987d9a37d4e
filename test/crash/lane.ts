/** One service that is killed again and again, with the instance that has to survive it. */

import assert from 'node:assert/strict';
import { type House, type Machine, openHouse } from '../support/house.ts';
import { keyFileLines } from '../support/key-file.ts';
import { sleep } from '../support/waiting.ts';
import type { Action } from './actions.ts';
import { assertKeysKept, assertNoPrivateKeys, settled } from './aftermath.ts';

const DEATH_TIMEOUT_MS = 60_000;
/** So few ports that they have to be used again and again. */
const SSH_PORTS = 3;

export class Lane {
  readonly house: House;
  private readonly main: Machine;
  crashes = 0;
  keysChecked = 0;
  unansweredKeysLeft = 0;

  private constructor(house: House, main: Machine) {
    this.house = house;
    this.main = main;
  }

  static async open(): Promise<Lane> {
    const house = await openHouse({ sshPorts: SSH_PORTS });
    return new Lane(house, await house.machine());
  }

  /** Crash, recovery, a look at everything, and back to where the next one starts from. */
  async survive(point: string, action: Action): Promise<void> {
    const linesBefore = await this.lines();
    try {
      await this.crash(point, action);
    } finally {
      await this.house.service.end('SIGKILL');
      await this.house.service.start();
    }
    await settled(this.house);
    assert.equal(await action.problem(this.house, this.main), undefined);
    await this.startMain();
    await this.checkKeys(point, linesBefore);
    assertNoPrivateKeys(this.house);
    await this.tidy();
  }

  private async crash(point: string, action: Action): Promise<void> {
    const { service } = this.house;
    await action.prepare(this.house, this.main);
    await service.stop();
    await service.start({ BERTH_TEST_CRASH_AT: point });
    const answer = action.trigger(this.house, this.main).then(
      () => undefined,
      (error: unknown) => error,
    );
    const late = sleep(DEATH_TIMEOUT_MS, undefined, { ref: false });
    const exit = await Promise.race([service.waitForExit(), late]);
    assert.ok(exit !== undefined, `${point} was never reached`);
    assert.equal(exit.signal, 'SIGKILL', `at ${point}: ${JSON.stringify(exit)}`);
    this.crashes += 1;
    const error = await answer;
    if (error instanceof assert.AssertionError) throw error;
  }

  private async lines(): Promise<string[]> {
    return this.house.skipLogins === false ? keyFileLines(this.main.login) : [];
  }

  private async startMain(): Promise<void> {
    const { api } = this.house;
    if ((await api.instance(this.main.uuid)).status !== 'STOPPED') return;
    await api.startInstance(this.main.uuid);
    await api.reach(this.main.uuid, 'RUNNING', ['STOPPED', 'STARTING']);
  }

  /**
   * Between the second commit and the answer nobody can know whether the answer left: a key that stays then is
   * counted, because to lose one that was acknowledged would be worse. At any other point nothing may stay.
   */
  private async checkKeys(point: string, linesBefore: readonly string[]): Promise<void> {
    await assertKeysKept(this.house, this.main, [this.main]);
    this.keysChecked += 1;
    const left = (await this.lines()).length - linesBefore.length;
    if (point === 'add_key:confirmed:after') this.unansweredKeysLeft += left;
    else assert.equal(left, 0, 'a key that was never answered is gone');
  }

  /** Leaves the main instance and its snapshot. */
  private async tidy(): Promise<void> {
    const { api } = this.house;
    for (const one of (await api.instances()).values()) {
      if (one.uuid === this.main.uuid) continue;
      await api.deleteInstance(one.uuid);
      await api.gone(one.uuid);
    }
  }

  /** Deletes what is left: then nothing is there, and every port can be bound. */
  async empty(): Promise<void> {
    const { api, service } = this.house;
    for (const one of await api.snapshots()) await api.deleteSnapshot(one.id);
    await api.deleteInstance(this.main.uuid);
    await api.gone(this.main.uuid);
    assert.deepEqual(await settled(this.house), { instances: [], snapshots: [] });
    for (let port = service.sshPorts.from; port <= service.sshPorts.to; port += 1) {
      assert.equal(await service.view.isPublished(port), false, `port ${port} is free`);
    }
  }
}
