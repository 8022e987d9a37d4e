/** What has to be true after the service was killed and started again. */

import assert from 'node:assert/strict';
import type { Api } from '../support/client.ts';
import type { Instance, Snapshot } from '../support/contract.ts';
import type { EngineView } from '../support/engine-view.ts';
import type { House, Machine } from '../support/house.ts';
import { loginTo } from '../support/house.ts';
import { keyFileLines } from '../support/key-file.ts';
import { sameKeyPart } from '../support/keys.ts';
import { filesBelow, privateKeysIn } from '../support/secrets.ts';
import { loginProblem } from '../support/ssh.ts';
import { eventuallyPasses, pooled } from '../support/waiting.ts';

const SETTLE_MS = 60_000;
const LOGINS_AT_ONCE = 4;
const SETTLED = ['RUNNING', 'STOPPED', 'UNKNOWN'];

export interface Settled {
  readonly instances: readonly Instance[];
  readonly snapshots: readonly Snapshot[];
}

function assertSettled(state: Settled): void {
  for (const one of state.instances) {
    assert.ok(SETTLED.includes(one.status), `instance ${one.id} is ${one.status}`);
    assert.ok(one.status !== 'UNKNOWN' || one.failure !== undefined, 'UNKNOWN says why');
  }
  for (const one of state.snapshots) {
    assert.notEqual(one.status, 'CREATING', `snapshot ${one.name}`);
  }
}

/** The engine holds what the API lists, and nothing else. Of failed things it may hold something or not. */
async function assertNothingLeftOver(view: EngineView, state: Settled): Promise<void> {
  const held = await view.held();
  const sound = state.instances.filter((one) => one.status !== 'UNKNOWN').map((one) => one.uuid);
  const failed = state.instances.filter((one) => one.status === 'UNKNOWN').map((one) => one.uuid);
  const instances = held.instances.filter((name) => !failed.includes(name));
  assert.deepEqual(instances, sound.sort(), 'instances');
  const ready = state.snapshots.filter((one) => one.status === 'READY').map((one) => one.id);
  assert.deepEqual(held.snapshots, ready.sort(), 'snapshots');
  assert.deepEqual(held.halfMade, [], 'things half made');
}

/** Each running instance runs once, and no other. */
async function assertRunning(view: EngineView, state: Settled): Promise<void> {
  const living = await view.running();
  const running = state.instances.filter((one) => one.status === 'RUNNING');
  assert.deepEqual([...living.keys()].sort(), running.map((one) => one.uuid).sort(), 'what runs');
  for (const [uuid, count] of living) assert.equal(count, 1, `${uuid} runs ${count} times`);
}

/** A port leads to the running instance that says so, and no other does. Of failed things one may be left or not. */
async function assertPublished(view: EngineView, state: Settled): Promise<void> {
  const found = await view.published();
  if (found === undefined) return;
  const said = state.instances
    .filter((one) => one.status === 'RUNNING')
    .map((one) => [one.uuid, [one.port, ...one.httpPorts].map(Number).sort()] as const);
  const failed = state.instances.filter((one) => one.status === 'UNKNOWN').map((one) => one.uuid);
  const ours = [...found].filter(([uuid]) => !failed.includes(uuid));
  assert.deepEqual(new Map(ours.sort()), new Map(said.toSorted()), 'published ports');
}

async function look(api: Api): Promise<Settled> {
  return { instances: [...(await api.instances()).values()], snapshots: await api.snapshots() };
}

/** Waits until everything is in order; the last thing that was not is the error. */
export async function settled(house: House, timeoutMs = SETTLE_MS): Promise<Settled> {
  const { view } = house.service;
  let state: Settled = { instances: [], snapshots: [] };
  await eventuallyPasses(timeoutMs, async () => {
    state = await look(house.api);
    assertSettled(state);
    await assertNothingLeftOver(view, state);
    await assertPublished(view, state);
    if (house.skipLogins === false) await assertRunning(view, state);
  });
  return state;
}

/** No private key of any instance's user is on the disk or in what the service printed. */
export function assertNoPrivateKeys(house: House): void {
  const { dataFolder, logFile, outputFile } = house.service;
  assert.deepEqual(privateKeysIn([...filesBelow(dataFolder), logFile, outputFile]), []);
}

/** A key whose addition was acknowledged. */
export interface Acknowledged {
  readonly uuid: string;
  readonly keyFile: string;
  readonly publicKey: string;
}

/** Every acknowledged key is in the file once, and logs in. */
export async function assertKeysKept(
  house: House,
  machine: Machine,
  keys: readonly Acknowledged[],
): Promise<void> {
  if (house.skipLogins !== false) return;
  const login = loginTo(await house.api.instance(machine.uuid), machine.keyFile);
  const parts = (await keyFileLines(login)).map(sameKeyPart);
  for (const key of keys) {
    const wanted = sameKeyPart(key.publicKey);
    assert.equal(parts.filter((part) => part === wanted).length, 1, key.publicKey);
  }
  // The file was read by a login with the machine's own key, which is thereby proved.
  const others = keys.filter((key) => key.keyFile !== machine.keyFile);
  const problems = await pooled(others, LOGINS_AT_ONCE, ({ keyFile }) =>
    loginProblem({ ...login, keyFile }),
  );
  assert.deepEqual(new Set(problems), new Set(others.length === 0 ? [] : [undefined]));
}
