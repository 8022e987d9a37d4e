/** A guest's disk that is full, and a pool that is: failures that say why, nothing left of them, and a way out. */

import assert from 'node:assert/strict';
import { dirname } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { IncusClient } from '../../src/engines/incus/client.ts';
import { SMALL_INSTANCE } from '../support/client.ts';
import { type House, type Machine, openHouse } from '../support/house.ts';
import { checkErrorBody } from '../support/http.ts';
import { engineUnderTest, type IncusServer, incusOfThisRun, skipIncus } from '../support/incus.ts';
import { makePool } from '../support/incus-contents.ts';
import { readKeyFile } from '../support/key-file.ts';
import { makeKeyPair } from '../support/keys.ts';
import { sshWell } from '../support/ssh.ts';
import { eventually, eventuallyPasses } from '../support/waiting.ts';
import { settled } from './aftermath.ts';

const DONE_MS = 60_000;
const SMALL_POOL = { name: 'small', sizeGib: 1 };
/** A file that no copy of finds room for in what is left over. */
const LONG_FILE = 'yes "# a line of nobody" | head -c 300000 >> ~/.ssh/authorized_keys; sync';
/** To the last block; room that is reserved is full, too. */
const FILL =
  'n=0; for size in 1G 64M 8M 1M 64K; do while fallocate -l $size fill$n 2>/dev/null; do n=$((n+1)); done; done; ' +
  'dd if=/dev/zero of=rest bs=4k 2>/dev/null; sync; true';
const EMPTY = 'rm -f fill* rest; sync';

const skip = skipIncus || (engineUnderTest !== 'incus' && 'it is about Incus');

describe('no room', { skip, concurrency: 1 }, () => {
  const stack = new AsyncDisposableStack();
  after(() => stack.disposeAsync());

  async function open(incus: IncusServer = incusOfThisRun): Promise<House> {
    // How large an instance may be is not what this is about.
    const environment = { BERTH_OVERCOMMIT: 'cpu=4,memory=1,disk=1000' };
    const house = await openHouse({ incus, environment });
    stack.defer(() => house.dispose());
    return house;
  }

  /** The status; a failure has the contract's words, and leaves the file as it was. */
  async function addKey(
    { api }: House,
    { uuid, login }: Machine,
    publicKey: string,
  ): Promise<number> {
    const fileBefore = await readKeyFile(login);
    const body = { public_key: publicKey };
    const answer = await api.call('POST', `/v1/instances/${uuid}/add_key`, { body });
    if (answer.status === 200) return 200;
    const { error, message } = checkErrorBody(answer.status, answer.text);
    assert.equal(error, 'engine_error');
    assert.match(message, /full/);
    assert.ok(fileBefore.equals(await readKeyFile(login)), 'byte for byte');
    return answer.status;
  }

  async function snapshotEnds({ api }: House, uuid: string, name: string): Promise<string> {
    await api.createSnapshot(uuid, name);
    return eventually('its end', DONE_MS, async () => {
      const { status } = (await api.snapshots()).find((one) => one.name === name) ?? {};
      return status === 'CREATING' ? undefined : status;
    });
  }

  async function deleteSnapshots({ api }: House): Promise<void> {
    for (const { id } of await api.snapshots()) await api.deleteSnapshot(id);
  }

  describe("a guest's disk", { concurrency: 1 }, () => {
    let house: House;
    let main: Machine;

    before(async () => {
      house = await open();
      main = await house.machine();
      await sshWell(main.login, LONG_FILE);
      await sshWell(main.login, FILL);
    });

    test('no key is added, the file stays byte for byte, and taking one off works or says why', async () => {
      const { publicKey } = await makeKeyPair(house.keyFolder);
      assert.equal(await addKey(house, main, publicKey), 502);
      const [key] = await house.api.keys(main.uuid);
      const path = `/v1/instances/${main.uuid}/keys/${encodeURIComponent(key?.fingerprint ?? '')}`;
      const fileBefore = await readKeyFile(main.login);
      const answer = await house.api.call('DELETE', path);
      if (answer.status < 300) return;
      assert.equal(checkErrorBody(answer.status, answer.text).error, 'engine_error');
      assert.ok(fileBefore.equals(await readKeyFile(main.login)));
    });

    test('a snapshot of it succeeds or fails, and leaves nothing', async () => {
      const status = await snapshotEnds(house, main.uuid, 'full');
      assert.ok(['READY', 'FAILED'].includes(status), status);
      await settled(house, DONE_MS);
      await deleteSnapshots(house);
      await settled(house, DONE_MS);
    });

    test('a larger disk mends it', async () => {
      const body = { disk_size_gb: 20 };
      const path = `/v1/instances/${main.uuid}/modify`;
      const answer = await house.api.call('POST', path, { body });
      assert.equal(answer.status, 200, answer.text);
      const { publicKey } = await makeKeyPair(house.keyFolder);
      assert.equal(await addKey(house, main, publicKey), 200);
      await settled(house, DONE_MS);
    });
  });

  describe('the pool', { concurrency: 1 }, () => {
    let house: House;
    let main: Machine;

    before(async () => {
      const { url } = incusOfThisRun;
      const client = new IncusClient({ endpoints: [url], tls: undefined, project: 'default' });
      stack.defer(() => client.close());
      const pool = await makePool(client, dirname(url.slice('unix:'.length)), () => {}, SMALL_POOL);
      house = await open({ ...incusOfThisRun, pool });
      main = await house.machine();
      await sshWell(main.login, LONG_FILE);
      await sshWell(main.login, FILL);
    });

    test('what cannot be made says why and leaves nothing, and what is there can be deleted', async () => {
      const { api } = house;
      const { publicKey } = await makeKeyPair(house.keyFolder);
      assert.ok([200, 502].includes(await addKey(house, main, publicKey)));
      const taken = await snapshotEnds(house, main.uuid, 'full');
      assert.ok(['READY', 'FAILED'].includes(taken), taken);
      const { uuid } = await api.createInstance({ ...SMALL_INSTANCE, public_key: publicKey });
      const made = await eventually('its end', DONE_MS, async () => {
        const found = await api.instance(uuid);
        return ['RUNNING', 'UNKNOWN'].includes(found.status) ? found : undefined;
      });
      console.log(`the pool is full: snapshot ${taken}, instance ${made.status}: ${made.failure}`);
      if (made.status === 'UNKNOWN') assert.match(made.failure ?? '', /full|space/);
      await settled(house, DONE_MS);
      await api.deleteInstance(uuid);
      await deleteSnapshots(house);
      await api.gone(uuid);
      const { instances, snapshots } = await settled(house, DONE_MS);
      assert.deepEqual([instances.length, snapshots.length], [1, 0]);
    });

    test('all works again when there is room', async () => {
      await sshWell(main.login, EMPTY);
      // The storage takes a moment to hand out again what was freed.
      await eventuallyPasses(DONE_MS, async () => {
        await deleteSnapshots(house);
        await settled(house, DONE_MS);
        assert.equal(await snapshotEnds(house, main.uuid, 'roomy'), 'READY');
      });
      const { publicKey } = await makeKeyPair(house.keyFolder);
      await eventuallyPasses(DONE_MS, async () => {
        assert.equal(await addKey(house, main, publicKey), 200);
      });
      const restored = await house.machine({ template: 'roomy' });
      await house.api.deleteInstance(restored.uuid);
      await house.api.gone(restored.uuid);
      await settled(house, DONE_MS);
    });
  });
});
