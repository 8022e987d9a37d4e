/** Much concurrent work on one service, in the middle of which something dies, and what has to be true of it after. */

import assert from 'node:assert/strict';
import { SMALL_INSTANCE } from '../support/client.ts';
import type { House, Machine } from '../support/house.ts';
import { keyFileLines } from '../support/key-file.ts';
import { makeKeyPair, publicHalf, saveKey } from '../support/keys.ts';
import type { Random } from '../support/random.ts';
import { eventuallyPasses, sleep } from '../support/waiting.ts';
import {
  type Acknowledged,
  assertKeysKept,
  assertNoPrivateKeys,
  type Settled,
  settled,
} from './aftermath.ts';

const TAKEN_BACK_MS = 60_000;

export interface Death {
  /** Statuses of answers to requests that it may have been in the way of. */
  readonly refusals: readonly number[];
  /** The service itself dies: answers may be lost, and with them the knowledge what was done. */
  readonly losesAnswers: boolean;
  /** Waits for its moment. */
  happen(): Promise<void>;
  /** Called when every request has ended. */
  recover(): Promise<void>;
}

/** What one round was told by the service. */
class Told {
  readonly keys: Acknowledged[] = [];
  readonly created: string[] = [];
  readonly deleted: string[] = [];
  readonly snapshots: string[] = [];
  unansweredGenerated = 0;
  /** Public keys sent without a success: whether they are there is known only when there was an answer. */
  readonly unansweredSupplied: string[] = [];
}

export class Rounds {
  readonly counts = { rounds: 0, requests: 0, answered: 0, keysKept: 0, unansweredKeysLeft: 0 };
  /** Lines that nobody was told of: they may be taken back at any time. */
  private readonly strays = new Set<string>();
  private readonly house: House;
  private readonly main: Machine;
  private readonly random: Random;
  private readonly spreadMs: number;

  constructor(house: House, main: Machine, random: Random, spreadMs: number) {
    this.house = house;
    this.main = main;
    this.random = random;
    this.spreadMs = spreadMs;
  }

  async one(number: number, death: Death): Promise<void> {
    const linesBefore = await this.lines();
    const before = await settled(this.house);
    const told = new Told();
    const working = this.work(told, number, before, death);
    await Promise.all([death.happen(), working]);
    await death.recover();
    this.counts.rounds += 1;
    const state = await settled(this.house);
    await this.assertPromisesKept(told, state);
    await this.assertNoStrayKeys(told, linesBefore, death);
    assertNoPrivateKeys(this.house);
    await this.tidy(state);
  }

  /** Deletes everything: then nothing is left over. */
  async empty(): Promise<void> {
    const { api } = this.house;
    for (const one of (await api.instances()).values()) await api.deleteInstance(one.uuid);
    for (const one of await api.snapshots()) await api.deleteSnapshot(one.id);
    await api.gone(this.main.uuid);
    assert.deepEqual(await settled(this.house), { instances: [], snapshots: [] });
  }

  private async lines(): Promise<string[]> {
    return this.house.skipLogins === false ? keyFileLines(this.main.login) : [];
  }

  /** Everything at once, each from its own moment on. */
  private work(told: Told, number: number, before: Settled, death: Death): Promise<unknown> {
    const { main } = this;
    const { api } = this.house;
    const template = before.snapshots.find((one) => one.status === 'READY')?.name ?? 'base';
    const extra = before.instances.find((one) => one.uuid !== main.uuid);
    const old = before.snapshots.find((one) => one.name !== template);
    const answered = (request: () => Promise<void>) => this.answered(request, death);
    const jobs: (() => Promise<unknown>)[] = [
      ...Array.from({ length: 4 }, () => () => this.addGenerated(told, answered)),
      ...Array.from({ length: 4 }, () => () => this.addSupplied(told, answered)),
      () => answered(async () => void told.created.push(await this.create('base'))),
      () => answered(async () => void told.created.push(await this.create(template))),
      () => {
        const name = `round-${number}`;
        return answered(async () => {
          await api.createSnapshot(main.uuid, name);
          told.snapshots.push(name);
        });
      },
    ];
    if (extra)
      jobs.push(() =>
        answered(async () => {
          await api.deleteInstance(extra.uuid);
          told.deleted.push(extra.uuid);
        }),
      );
    if (old) jobs.push(() => answered(() => api.deleteSnapshot(old.id)));
    const begin = jobs.map(async (job) => {
      await sleep(this.random.below(this.spreadMs));
      await job();
    });
    return Promise.all(begin);
  }

  private async create(template: string): Promise<string> {
    const body = { ...SMALL_INSTANCE, template, public_key: this.main.publicKey };
    return (await this.house.api.createInstance(body)).uuid;
  }

  /** Counts a request; true when it succeeded. Being refused for what died, or for a change under way, is no error. */
  private async answered(request: () => Promise<void>, death: Death): Promise<boolean> {
    this.counts.requests += 1;
    try {
      await request();
      this.counts.answered += 1;
      return true;
    } catch (error) {
      const isAnswer = error instanceof assert.AssertionError;
      const isAllowed = isAnswer
        ? [409, ...death.refusals].some((code) => error.message.includes(`"code":${code}`))
        : death.losesAnswers;
      if (!isAllowed) throw error;
      return false;
    }
  }

  private async addGenerated(told: Told, answered: Answered): Promise<void> {
    const { api, keyFolder } = this.house;
    const done = await answered(async () => {
      const keyFile = saveKey(keyFolder, (await api.addKey(this.main.uuid)).key);
      told.keys.push({ uuid: this.main.uuid, keyFile, publicKey: await publicHalf(keyFile) });
    });
    if (!done) told.unansweredGenerated += 1;
  }

  private async addSupplied(told: Told, answered: Answered): Promise<void> {
    const pair = await makeKeyPair(this.house.keyFolder);
    const done = await answered(async () => {
      await this.house.api.addKey(this.main.uuid, { public_key: pair.publicKey });
      told.keys.push({ uuid: this.main.uuid, ...pair });
    });
    if (!done) told.unansweredSupplied.push(pair.publicKey);
  }

  private async assertPromisesKept(told: Told, state: Settled): Promise<void> {
    const status = new Map(state.instances.map((one) => [one.uuid, one.status]));
    for (const uuid of told.created) assert.equal(status.get(uuid), 'RUNNING', 'created');
    for (const uuid of told.deleted) assert.equal(status.get(uuid), undefined, 'deleted');
    for (const name of told.snapshots) {
      assert.ok(
        state.snapshots.some((one) => one.name === name),
        `snapshot ${name} is listed`,
      );
    }
    assert.equal(status.get(this.main.uuid), 'RUNNING');
    await assertKeysKept(this.house, this.main, told.keys);
    this.counts.keysKept += told.keys.length;
  }

  /**
   * Lines that nobody was told of: none, where every request had an answer. Where answers were lost, fewer than the
   * generated pairs that were under way, and counted. Every other line of before is still there.
   */
  private async assertNoStrayKeys(
    told: Told,
    before: readonly string[],
    { losesAnswers }: Death,
  ): Promise<void> {
    if (this.house.skipLogins !== false) return;
    const known = new Set([...before, ...(losesAnswers ? told.unansweredSupplied : [])]);
    const parts = told.keys.map((key) => key.publicKey.split(' ')[1] ?? '');
    const most = losesAnswers ? told.unansweredGenerated : 0;
    const kept = before.filter((line) => !this.strays.has(line));
    let strays: string[] = [];
    await eventuallyPasses(losesAnswers ? 0 : TAKEN_BACK_MS, async () => {
      const lines = await this.lines();
      for (const line of kept) assert.ok(lines.includes(line), `this line is lost: ${line}`);
      strays = lines.filter(
        (line) => !known.has(line) && !parts.some((part) => line.includes(part)),
      );
      assert.ok(strays.length <= most, strays.join('\n'));
    });
    this.counts.unansweredKeysLeft += strays.length;
    for (const line of strays) this.strays.add(line);
  }

  private async tidy(state: Settled): Promise<void> {
    const { api } = this.house;
    const extras = state.instances.filter((one) => one.uuid !== this.main.uuid).slice(1);
    for (const one of extras) await api.deleteInstance(one.uuid);
    for (const one of state.snapshots.slice(2)) await api.deleteSnapshot(one.id);
    for (const one of extras) await api.gone(one.uuid);
  }
}

type Answered = (request: () => Promise<void>) => Promise<boolean>;
