/** Create, snapshot and restore on Incus, against the raw calls to the same point: the SSH banner on the published port. */

import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { generateKeyPair } from '../src/domain/ssh-key-pair.ts';
import { type IncusRig, remove, size, untilRunning } from './incus-rig.ts';
import { atMost, type Measurement, median, timeMs } from './measurement.ts';

const rounds = 9;
/** A snapshot is short, and its ratio the more at the mercy of a disk that is busy for a moment. */
const snapshotRounds = 41;
const warmUpRounds = 2;
const rawPort = 24_149;
const rawHost = 149;

/** `ours` and `raw` by turns; what they make is removed outside of the time. */
async function byTurns(
  ours: () => Promise<() => Promise<void>>,
  raw: () => Promise<() => Promise<void>>,
  count = rounds,
): Promise<{ ours: number; raw: number }> {
  const times = { ours: [] as number[], raw: [] as number[] };
  const measure = async (work: typeof ours, into: number[], counts: boolean) => {
    let undo = async (): Promise<void> => {};
    const ms = await timeMs(async () => {
      undo = await work();
    });
    await undo();
    if (counts) into.push(ms);
  };
  for (let round = 1 - warmUpRounds; round <= count; round++) {
    const both = [
      () => measure(ours, times.ours, round > 0),
      () => measure(raw, times.raw, round > 0),
    ];
    for (const one of round % 2 === 0 ? both : both.reverse()) await one();
  }
  return { ours: median(times.ours), raw: median(times.raw) };
}

const line = (name: string, times: { ours: number; raw: number }, goal: number): Measurement => ({
  name,
  ratio: times.ours / times.raw,
  detail: `${times.ours.toFixed(0)} ms; raw ${times.raw.toFixed(0)} ms`,
  goal: atMost(goal),
});

export async function benchLives(rig: IncusRig): Promise<Measurement[]> {
  const key = generateKeyPair('bench').publicKey.line;
  const wanted = { ...size, mode: 'prototyping', public_key: key } as const;
  const create = async (template: string) => {
    const { uuid } = await rig.client.createInstance({ ...wanted, template });
    const { ip = '', port = 0 } = await untilRunning(rig.client, uuid);
    await banner(ip, port);
    return () => remove(rig, uuid);
  };
  const raw = rawCalls(rig);
  const image = { type: 'image', alias: 'berth-base' };
  const creating = await byTurns(
    () => create('base'),
    () => raw.create(image),
  );

  const { uuid } = await rig.client.createInstance({ ...wanted, template: 'base' });
  await untilRunning(rig.client, uuid);
  const snapshotting = async (rawSnapshot: (source: string) => Promise<() => Promise<void>>) =>
    byTurns(
      () => snapshot(rig, uuid, `bench-${crypto.randomUUID()}`),
      () => rawSnapshot(`berth-i-${uuid}`),
      snapshotRounds,
    );
  const inThree = await snapshotting(raw.snapshot);
  const { goal: _, ...inOne } = line('', await snapshotting(raw.copy), 0);

  await snapshot(rig, uuid, 'bench');
  const { id } = (await rig.client.listSnapshots())[0] ?? { id: '' };
  const holder = { type: 'copy', source: `berth-s-${id}`, instance_only: true };
  const restoring = await byTurns(
    () => create('bench'),
    () => raw.create(holder),
  );
  return [
    line('Incus: create to SSH banner / raw calls', creating, 1.15),
    line('Incus: snapshot to READY / raw calls', inThree, 1.3),
    { ...inOne, name: 'Incus: snapshot to READY / one raw copy' },
    line('Incus: restore to SSH banner / raw calls', restoring, 1.3),
  ];
}

async function snapshot(rig: IncusRig, uuid: string, name: string): Promise<() => Promise<void>> {
  await rig.client.createSnapshot({ instanceId: uuid, name });
  for (;;) {
    const made = (await rig.client.listSnapshots()).find((one) => one.name === name);
    if (made?.status === 'READY') return async () => rig.client.deleteSnapshot(made.id);
    if (made?.status === 'FAILED') throw new Error('the snapshot failed');
    await sleep(2);
  }
}

/** What a script would do with nothing but Incus: each call waited for. */
function rawCalls({ place }: IncusRig) {
  const { client, project, pool, network, address } = place;
  const subnet = address.slice(0, address.lastIndexOf('.'));
  const guest = `${subnet}.${rawHost}`;
  const forwards = `/1.0/networks/${network}/forwards/${address}`;
  const change = (method: 'POST' | 'PUT' | 'DELETE', path: string, body?: unknown) =>
    client.change(method, path, body, { project, timeoutMs: 60_000 });
  const create = async (source: object) => {
    const name = `raw-${crypto.randomUUID()}`;
    const nic = { type: 'nic', network, name: 'eth0', 'ipv4.address': guest };
    const devices = { root: { type: 'disk', path: '/', pool, size: '5GB' }, eth0: nic };
    const config = { 'limits.cpu': '1', 'limits.memory': '4GiB', 'user.berth.kind': '' };
    await change('POST', '/1.0/instances', { name, profiles: [], source, config, devices });
    const { value } = await client.getTagged<{ ports: object[] }>(forwards, { project });
    const port = {
      protocol: 'tcp',
      listen_port: String(rawPort),
      target_address: guest,
      target_port: '22',
    };
    await change('PUT', forwards, { config: {}, description: '', ports: [...value.ports, port] });
    await change('PUT', `/1.0/instances/${name}/state`, { action: 'start', timeout: 30 });
    await banner(address, rawPort);
    return async () => {
      await change('PUT', forwards, { config: {}, description: '', ports: value.ports });
      const stop = { action: 'stop', force: true, timeout: 30 };
      await change('PUT', `/1.0/instances/${name}/state`, stop);
      await change('DELETE', `/1.0/instances/${name}`);
    };
  };
  /** A copy of one moment that outlives its source, as Incus's own tools make it. */
  const snapshotOf = async (source: string) => {
    const snapshots = `/1.0/instances/${source}/snapshots`;
    const name = `raw-${crypto.randomUUID()}`;
    await change('POST', snapshots, { name, stateful: false });
    const undo = await copyOf(`${source}/${name}`);
    await change('DELETE', `${snapshots}/${name}`);
    return undo;
  };
  const copyOf = async (source: string) => {
    const name = `raw-${crypto.randomUUID()}`;
    const devices = {
      root: { type: 'disk', path: '/', pool, size: '5GB' },
      eth0: { type: 'none' },
    };
    const copy = { type: 'copy', source, instance_only: true };
    await change('POST', '/1.0/instances', { name, profiles: [], source: copy, devices });
    return async () => {
      await change('DELETE', `/1.0/instances/${name}`);
    };
  };
  return { create, snapshot: snapshotOf, copy: copyOf };
}

/** Resolves with the first bytes of sshd; tries until there are any. */
async function banner(host: string, port: number): Promise<void> {
  while (!(await answers(host, port))) await sleep(5);
}

function answers(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const finish = (answer: boolean) => () => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('data', finish(true));
    socket.once('error', finish(false));
    socket.once('close', finish(false));
    socket.setTimeout(500, finish(false));
  });
}
