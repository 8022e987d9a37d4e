/** incusd hangs, or is not there at all: errors of the contract in time, nothing left of them, and all goes on after. */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Api, SMALL_INSTANCE } from '../support/client.ts';
import type { House, Machine } from '../support/house.ts';
import { checkErrorBody, exchange } from '../support/http.ts';
import { engineUnderTest, skipIncus } from '../support/incus.ts';
import { openPrivateIncus, type PrivateIncus } from '../support/incus-host.ts';
import { keyFileLines, linesWith } from '../support/key-file.ts';
import { makeKeyPair } from '../support/keys.ts';
import { loginProblem } from '../support/ssh.ts';
import { eventually, eventuallyPasses, sleep } from '../support/waiting.ts';
import { settled } from './aftermath.ts';
import { DaemonLane } from './daemon-lane.ts';
import { guestPid, incusObject } from './incus-objects.ts';

const BACK_MS = 60_000;
/** Far below the ten seconds that the engine is waited for. */
const AT_ONCE_MS = 4_000;
const AWAY = [503, 504];

const skip = skipIncus || (engineUnderTest !== 'incus' && 'it is about Incus');

describe('incusd away', { skip, concurrency: 1 }, () => {
  const stack = new AsyncDisposableStack();
  let incus: PrivateIncus;
  let house: House;
  let main: Machine;
  let api: Api;

  before(async () => {
    // A daemon of its own: others need theirs.
    incus = await openPrivateIncus(() => {});
    stack.defer(() => incus.remove());
    const lane = await DaemonLane.open(incus.server);
    ({ house, main } = lane);
    ({ api } = house);
    stack.defer(() => house.dispose());
    stack.defer(() => incus.restart());
  });
  after(() => stack.disposeAsync());

  const addPath = () => `/v1/instances/${main.uuid}/add_key`;
  const ready = () => exchange(house.service.baseUrl, { method: 'GET', path: '/readyz' });

  /** The status; an error has the form and the words of the contract. */
  async function statusOf(method: string, path: string, body?: unknown): Promise<number> {
    const answer = await api.call(method, path, { body });
    if (answer.status >= 400) checkErrorBody(answer.status, answer.text);
    return answer.status;
  }

  async function refusedAsAway(method: string, path: string, body?: unknown): Promise<void> {
    const status = await statusOf(method, path, body);
    assert.ok(AWAY.includes(status), `${method} ${path} is answered with ${status}`);
  }

  async function assertListsAtOnce(): Promise<void> {
    const startedAt = performance.now();
    assert.equal((await api.instance(main.uuid)).status, 'RUNNING');
    await api.instances();
    await api.snapshots();
    assert.ok(performance.now() - startedAt < AT_ONCE_MS, 'lists need no Incus');
  }

  /** Several at moments of which some are in the middle of the guest's work when Incus stops. */
  async function addAround(moments: number): Promise<{ publicKey: string; isThere: boolean }[]> {
    const pairs = await Promise.all(
      Array.from({ length: moments }, () => makeKeyPair(house.keyFolder)),
    );
    return Promise.all(
      pairs.map(async ({ publicKey }, index) => {
        await sleep(index * 12);
        const status = await statusOf('POST', addPath(), { public_key: publicKey });
        assert.ok([200, ...AWAY].includes(status), String(status));
        return { publicKey, isThere: status === 200 };
      }),
    );
  }

  async function assertKeys(
    linesBefore: readonly string[],
    keys: readonly { publicKey: string; isThere: boolean }[],
  ): Promise<void> {
    await eventuallyPasses(BACK_MS, async () => {
      for (const { publicKey, isThere } of keys) {
        const count = (await linesWith(main.login, publicKey)).length;
        assert.equal(
          count,
          isThere ? 1 : 0,
          `${isThere ? 'acknowledged' : 'refused'}: ${publicKey}`,
        );
      }
      const acknowledged = keys.filter((key) => key.isThere).length;
      const lines = await keyFileLines(main.login);
      assert.equal(lines.length, linesBefore.length + acknowledged, lines.join('\n'));
    });
  }

  test('hung: every request has its answer in time, and nothing of those that failed stays', async () => {
    const linesBefore = await keyFileLines(main.login);
    const pid = await guestPid(house, main.uuid);
    const adding = addAround(8);
    await sleep(50);
    incus.signal('SIGSTOP');
    try {
      const change = { cpu_cores: 2, add_ports: [house.service.sshPorts.to + 1] };
      const waiting = [
        refusedAsAway('POST', addPath()),
        refusedAsAway('POST', addPath(), {
          public_key: (await makeKeyPair(house.keyFolder)).publicKey,
        }),
        refusedAsAway('GET', `/v1/instances/${main.uuid}/keys`),
        refusedAsAway('POST', `/v1/instances/${main.uuid}/modify`, change),
        ready().then(({ status }) => assert.equal(status, 503)),
      ];
      const all = Promise.all([...waiting, adding]);
      // Only to be looked at further down.
      all.catch(() => undefined);
      await assertListsAtOnce();
      await api.createInstance({ ...SMALL_INSTANCE, public_key: main.publicKey });
      await api.createSnapshot(main.uuid, 'while-it-hung');
      await assertListsAtOnce();
      await all;
      await assertListsAtOnce();
    } finally {
      incus.signal('SIGCONT');
    }
    const state = await settled(house, BACK_MS);
    assert.deepEqual(new Set(state.instances.map((one) => one.status)), new Set(['RUNNING']));
    assert.deepEqual(
      state.snapshots.map((one) => one.status),
      ['READY'],
    );
    await assertKeys(linesBefore, await adding);
    assert.equal(await guestPid(house, main.uuid), pid, 'the guest runs on');
    // A change that was given up may still arrive: it is set right.
    await eventuallyPasses(BACK_MS, async () => {
      const { config } = await incusObject(house, main.uuid);
      assert.equal(config['limits.cpu'], '1');
    });
    const { status, text } = await ready();
    assert.equal(status, 200, text);
  });

  test('a key that was refused while it hung can be added after', async () => {
    const { publicKey } = await makeKeyPair(house.keyFolder);
    const wanted = { public_key: publicKey };
    incus.signal('SIGSTOP');
    try {
      await refusedAsAway('POST', addPath(), wanted);
    } finally {
      incus.signal('SIGCONT');
    }
    await eventually('it works again', BACK_MS, async () =>
      (await statusOf('POST', addPath(), wanted)) === 200 ? true : undefined,
    );
    await settled(house, BACK_MS);
    // What is found out of the first request must not take away what the second was told of.
    await sleep(3_000);
    assert.equal((await linesWith(main.login, publicKey)).length, 1);
  });

  test('gone when the service starts: it says so, changes nothing, and comes back by itself', async () => {
    const pid = await guestPid(house, main.uuid);
    const before = await api.instances();
    await house.service.stop();
    await incus.kill();
    await house.service.start();
    const { status, text } = await ready();
    assert.equal(status, 503);
    // Not held to the contract's words: it is for the operator, and names the socket.
    assert.match(text, /"code":503,.*no answer from unix:/);
    assert.deepEqual(await api.instances(), before);
    await refusedAsAway('POST', addPath());
    await refusedAsAway('GET', `/v1/instances/${main.uuid}/keys`);
    assert.equal(await loginProblem(main.login), undefined, 'guests run without it');
    await incus.restart();
    await eventually('it is ready again', BACK_MS, async () =>
      (await ready()).status === 200 ? true : undefined,
    );
    await settled(house, BACK_MS);
    assert.deepEqual(await api.instances(), before);
    assert.equal(await guestPid(house, main.uuid), pid);
    await api.addKey(main.uuid);
  });
});
