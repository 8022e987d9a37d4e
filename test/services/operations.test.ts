/** Every step of every operation: run twice, failed at, half-done and resumed. On the real engine and store. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Engine } from '../../src/engines/engine.ts';
import type { OperationKind } from '../../src/services/operations.ts';
import { openWorkshop, smallest, type Workshop } from './workshop.ts';

let shop: Workshop;
before(async () => {
  shop = await openWorkshop({ from: 28_100, to: 28_199 });
});
after(() => shop.close());

async function runningInstance(): Promise<string> {
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  await shop.settle();
  assert.equal((await shop.instances.get(shop.actor, uuid)).row.status, 'RUNNING');
  return uuid;
}

let counter = 0;
const newName = () => `snapshot-${++counter}`;

async function listed(name: string): Promise<{ id: string; status: string } | undefined> {
  const { body } = await shop.snapshots.list(shop.actor);
  return JSON.parse(body.toString()).find((one: { name: string }) => one.name === name);
}

/** How each kind is asked for, and what is true when it went well. */
interface Scenario {
  readonly prepare: () => Promise<string>;
  readonly ask: (subject: string) => Promise<unknown>;
  readonly check: (subject: string) => Promise<void>;
}

const statusIs = (status: string) => async (uuid: string) =>
  assert.equal((await shop.instances.get(shop.actor, uuid)).row.status, status);
const isGone = async (uuid: string) => {
  await assert.rejects(shop.instances.get(shop.actor, uuid), { kind: 'not_found' });
  assert.equal(await shop.engine.inspect(uuid), undefined);
};
let created = '';

const scenarios: Readonly<Record<string, Scenario>> = {
  'instance.create': {
    prepare: async () => '',
    ask: async () => {
      created = (await shop.instances.create(shop.actor, smallest)).uuid;
    },
    check: () => statusIs('RUNNING')(created),
  },
  'instance.stop': {
    prepare: runningInstance,
    ask: (uuid) => shop.instances.stop(shop.actor, uuid),
    check: statusIs('STOPPED'),
  },
  'instance.start': {
    prepare: async () => {
      const uuid = await runningInstance();
      await shop.instances.stop(shop.actor, uuid);
      await shop.settle();
      return uuid;
    },
    ask: (uuid) => shop.instances.start(shop.actor, uuid),
    check: statusIs('RUNNING'),
  },
  'instance.delete': {
    prepare: runningInstance,
    ask: (uuid) => shop.instances.delete(shop.actor, uuid),
    check: isGone,
  },
  'snapshot.create': {
    prepare: runningInstance,
    ask: (uuid) => shop.snapshots.create(shop.actor, uuid, newName()),
    check: async (uuid) => {
      assert.equal((await listed(`snapshot-${counter}`))?.status, 'READY');
      await statusIs('RUNNING')(uuid);
    },
  },
  'snapshot.delete': {
    prepare: async () => {
      const uuid = await runningInstance();
      await shop.snapshots.create(shop.actor, uuid, newName());
      await shop.settle();
      return (await listed(`snapshot-${counter}`))?.id ?? '';
    },
    ask: (id) => shop.snapshots.delete(shop.actor, id),
    check: async (id) => {
      assert.equal(await listed(`snapshot-${counter}`), undefined);
      assert.ok(!(await shop.engine.inventory()).snapshots.has(id));
    },
  },
};

/** Which call of the engine a step comes down to. */
const calls: Readonly<Record<string, keyof Engine>> = {
  'instance.create:disk': 'create',
  'instance.create:start': 'start',
  'instance.start:start': 'start',
  'instance.stop:stop': 'stop',
  'instance.delete:stop': 'stop',
  'instance.delete:disk': 'delete',
  'snapshot.create:copy': 'createSnapshot',
  'snapshot.delete:copy': 'deleteSnapshot',
};

test('every kind of operation has a scenario, and every step is known', () => {
  assert.deepEqual(shop.kinds.map((kind) => kind.kind).sort(), Object.keys(scenarios).sort());
  const steps = shop.kinds.flatMap((kind) => kind.steps.map((step) => `${kind.kind}:${step.name}`));
  assert.deepEqual(steps.sort(), Object.keys(calls).sort());
});

for (const [point, method] of Object.entries(calls)) {
  const kind = point.split(':')[0] ?? '';
  const scenario = scenarios[kind];
  if (!scenario) continue;

  test(`${point} fails twice before it works`, async () => {
    const subject = await scenario.prepare();
    await scenario.ask(subject);
    shop.faults.inject(method, 2);
    await shop.settle();
    shop.faults.clear();
    await scenario.check(subject);
  });

  test(`${point} does its work, and the answer is lost twice`, async () => {
    const subject = await scenario.prepare();
    await scenario.ask(subject);
    shop.faults.inject(method, 2, { after: true });
    await shop.settle();
    shop.faults.clear();
    await scenario.check(subject);
  });
}

for (const [kind, scenario] of Object.entries(scenarios)) {
  test(`${kind}: every step is run twice in a row`, async () => {
    const subject = await scenario.prepare();
    await scenario.ask(subject);
    const doubled = shop.kinds.map(withStepsTwice);
    await shop.newWorker('test', doubled).runOnce();
    await scenario.check(subject);
  });
}

function withStepsTwice(kind: OperationKind): OperationKind {
  const steps = kind.steps.map((step) => ({
    ...step,
    run: async (operation: Parameters<typeof step.run>[0]) => {
      await step.run(operation);
      await step.run(operation);
    },
  }));
  return { ...kind, steps };
}

test('a creation that fails for good is UNKNOWN with a reason, leaves nothing, and can be deleted', async () => {
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  shop.faults.inject('start', 1_000);
  await shop.settle();
  shop.faults.clear();
  const { row } = await shop.instances.get(shop.actor, uuid);
  assert.deepEqual([row.status, row.failure, row.ip], ['UNKNOWN', 'An injected fault.', null]);
  assert.equal(await shop.engine.inspect(uuid), undefined);
  await shop.instances.delete(shop.actor, uuid);
  await shop.settle();
  await isGone(uuid);
});

test('what the guest put in the way is final at once, and the engine failing five times is final too', async () => {
  const uuid = await runningInstance();
  for (const [kind, times] of [
    ['guest_conflict', 1],
    ['failed', 5],
  ] as const) {
    const name = newName();
    await shop.snapshots.create(shop.actor, uuid, name);
    shop.faults.inject('createSnapshot', times, { kind });
    await shop.settle();
    assert.equal((await listed(name))?.status, 'FAILED', kind);
    await statusIs('RUNNING')(uuid);
  }
});

test('an engine that is away is waited for', async () => {
  const uuid = await runningInstance();
  const name = newName();
  await shop.snapshots.create(shop.actor, uuid, name);
  shop.faults.inject('createSnapshot', 9, { kind: 'unavailable' });
  await shop.settle();
  assert.equal((await listed(name))?.status, 'READY');
});

test('no organization holds all workers', async () => {
  const shared = await Promise.all(
    [1, 2, 3, 4, 5, 6].map(() => shop.instances.create(shop.actor, smallest)),
  );
  assert.equal(await shop.worker.runOnce(), 4);
  await shop.settle();
  for (const { uuid } of shared) await statusIs('RUNNING')(uuid);
});

test('a full disk is final at once', async () => {
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  shop.faults.inject('create', 1, { kind: 'no_space' });
  await shop.worker.runOnce();
  assert.equal((await shop.instances.get(shop.actor, uuid)).row.status, 'UNKNOWN');
});

test('a snapshot that fails for good is FAILED, its instance runs on, and its name is free after deletion', async () => {
  const uuid = await runningInstance();
  const name = newName();
  await shop.snapshots.create(shop.actor, uuid, name);
  shop.faults.inject('createSnapshot', 1_000);
  await shop.settle();
  shop.faults.clear();
  const failed = await listed(name);
  assert.equal(failed?.status, 'FAILED');
  await statusIs('RUNNING')(uuid);
  await shop.snapshots.delete(shop.actor, failed?.id ?? '');
  await shop.settle();
  await shop.snapshots.create(shop.actor, uuid, name);
  await shop.settle();
  assert.equal((await listed(name))?.status, 'READY');
});

test('a busy SSH port makes a new instance move on to the next one', async () => {
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  const before = (await shop.instances.get(shop.actor, uuid)).row.ssh_port;
  shop.faults.inject('start', 1, { kind: 'port_taken' });
  await shop.settle();
  const { row } = await shop.instances.get(shop.actor, uuid);
  assert.equal(row.status, 'RUNNING');
  assert.notEqual(row.port, before);
});

test('two workers never run the same operation', async () => {
  const asked = await Promise.all([1, 2, 3].map(() => shop.instances.create(shop.actor, smallest)));
  const claimed = await Promise.all([shop.worker.runOnce(), shop.newWorker('other').runOnce()]);
  assert.equal((claimed[0] ?? 0) + (claimed[1] ?? 0), asked.length);
  for (const { uuid } of asked) await statusIs('RUNNING')(uuid);
});

test('an instance that died is started again; one that runs though stopped is stopped', async () => {
  const uuid = await runningInstance();
  await shop.engine.stop(uuid);
  await shop.monitor.look();
  await shop.settle();
  await statusIs('RUNNING')(uuid);
  assert.equal((await shop.engine.inspect(uuid))?.state, 'running');
});

test('a generated key whose engine call failed is nowhere', async () => {
  const uuid = await runningInstance();
  const text = await shop.engine.readKeys(uuid);
  for (const afterwards of [false, true]) {
    shop.faults.inject('addKey', 1, { after: afterwards });
    await assert.rejects(shop.keys.add(shop.actor, uuid, { verify: false }), {
      kind: 'engine_error',
    });
    shop.faults.clear();
    await shop.newKeySweeper().look();
    assert.equal(await shop.engine.readKeys(uuid), text);
  }
});
