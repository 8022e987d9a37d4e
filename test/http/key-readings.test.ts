/** One organization's hostile key file, and what others notice of it. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eachKeyLine } from '../../src/domain/authorized-keys.ts';
import { newId } from '../../src/domain/ids.ts';
import { KeyedLock } from '../../src/domain/keyed-lock.ts';
import { generateKeyPair } from '../../src/domain/ssh-key-pair.ts';
import type { Engine } from '../../src/engines/engine.ts';
import type { Actor, ServiceContext } from '../../src/services/context.ts';
import { InstanceKeyListService } from '../../src/services/instance-keys-list.ts';
import { KeyPlaceService } from '../../src/services/key-places.ts';
import { KeyReader } from '../../src/services/key-reader.ts';
import { openWorkshop, smallest, type Workshop } from '../services/workshop.ts';

const { line: KEY, fingerprint } = generateKeyPair('wanted').publicKey;
const OTHER = generateKeyPair('other').publicKey.line;

let shop: Workshop;
let ours: string;
let stranger: Actor;
let theirs: string;
before(async () => {
  shop = await openWorkshop({ from: 28_800, to: 28_819 });
  const created = () => shop.instances.create(shop.actor, { ...smallest, publicKey: OTHER });
  const [first, second] = [await created(), await created()];
  await shop.settle();
  [ours, theirs] = [first.uuid, second.uuid];
  const orgId = newId();
  const { db } = shop.store;
  const created_at = shop.context.now();
  await db
    .insertInto('organizations')
    .values({ id: orgId, name: 'stranger', next_identifier: 0, created_at })
    .execute();
  await db.updateTable('instances').set({ org_id: orgId }).where('id', '=', theirs).execute();
  await db
    .updateTable('instance_keys')
    .set({ org_id: orgId })
    .where('instance_id', '=', theirs)
    .execute();
  stranger = { ...shop.actor, orgId };
});
after(() => shop.close());

/** The services, where our instance's guest has written this file. */
async function guestWrote(text: string) {
  const { engine } = shop.context;
  const row = await shop.store.db
    .selectFrom('instances')
    .select('engine_ref')
    .where('id', '=', ours)
    .executeTakeFirstOrThrow();
  const readKeys: Engine['readKeys'] = async (ref) =>
    ref === row.engine_ref ? text : engine.readKeys(ref);
  const changed = new Proxy(engine, {
    get: (target, name) => (name === 'readKeys' ? readKeys : Reflect.get(target, name)),
  });
  const context: ServiceContext = { ...shop.context, engine: changed };
  const reader = new KeyReader(context);
  return {
    list: new InstanceKeyListService(context, new KeyedLock(), reader),
    places: new KeyPlaceService(context, reader),
  };
}

const keys = (count: number) => `${OTHER}\n`.repeat(count);

test("another organization's list is answered while eight readings of a large file run", async () => {
  const { list, places } = await guestWrote(keys(4_900));
  const done: string[] = [];
  const readings = Array.from({ length: 8 }, (_, index) =>
    (index % 2
      ? list.listWithPresence(shop.actor, ours)
      : places.find(shop.actor, fingerprint, false)
    ).then(() => done.push('ours')),
  );
  const answer = list.list(stranger, theirs).then((lines) => {
    done.push('theirs');
    return lines;
  });
  await Promise.all([...readings, answer]);
  assert.equal((await answer).length, 1);
  assert.equal(done[0], 'theirs', done.join(' '));
});

test('too many keys are not listed, and yet found and taken off', async () => {
  const text = `${keys(5_000)}${KEY}\n`;
  assert.equal([...eachKeyLine(Buffer.from(text))].length, 5_001);
  const { list, places } = await guestWrote(text);
  const tooMany = { kind: 'conflict', message: /more than 5000 keys/ };
  await assert.rejects(list.list(shop.actor, ours), tooMany);
  await assert.rejects(list.listWithPresence(shop.actor, ours), tooMany);
  const found = await places.find(shop.actor, fingerprint, false);
  assert.deepEqual(
    found.map(({ instance, access }) => [instance.id, access]),
    [[ours, 'full']],
  );
  const row = await shop.store.db
    .selectFrom('instances')
    .select('engine_ref')
    .where('id', '=', ours)
    .executeTakeFirstOrThrow();
  await shop.engine.addKey(row.engine_ref, { publicKey: KEY });
  await list.remove(shop.actor, ours, fingerprint);
  assert.doesNotMatch(await shop.engine.readKeys(row.engine_ref), /wanted/);
  assert.equal((await (await guestWrote(keys(5_000))).list.list(shop.actor, ours)).length, 5_000);
});

test('an instance that could never be made is none where a key may log in', async () => {
  const { uuid } = await shop.instances.create(shop.actor, { ...smallest, publicKey: KEY });
  const places = new KeyPlaceService(shop.context, new KeyReader(shop.context));
  const here = async (withMissing: boolean) =>
    (await places.find(shop.actor, fingerprint, withMissing)).find(
      ({ instance }) => instance.id === uuid,
    )?.presence;
  assert.equal(await here(false), 'recorded', 'its disk may be on its way');
  shop.faults.inject('start', 1_000);
  await shop.settle();
  assert.equal(await here(true), 'missing');
  assert.equal(await here(false), undefined);
  // An engine that cannot say leaves it open.
  shop.faults.inject('inspect', 1);
  assert.equal(await here(false), 'recorded');
  shop.faults.clear();
  await shop.instances.delete(shop.actor, uuid);
  await shop.settle();
});
