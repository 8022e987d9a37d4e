import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { mkdir, open, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type Client, createClient } from '../src/api/client.ts';
import type { Instance } from '../src/api/instances.ts';
import { generateKeyPair } from '../src/domain/ssh-key-pair.ts';
import { atMost, type Measurement, median, timeMs } from './measurement.ts';
import type { Rig } from './rig.ts';

const run = promisify(execFile);
const rounds = 60;
/** The first requests of a process meet code that is not compiled yet. */
const warmUpRounds = 30;
const copyRounds = 5;

/** Add key, supplied and generated, against what the disk alone must do, and against ssh-copy-id: by turns. */
export async function benchAddKey(rig: Rig): Promise<Measurement[]> {
  const token = await rig.organization(0);
  const client = createClient({ baseUrl: rig.url, token });
  const { instance, keyPath } = await makeInstance(rig, client);
  const addKey = keyAdder(`${rig.url}/v1/instances/${instance.id}/add_key`, token);
  const floor = await openFloor(rig.dataDir);
  const times = {
    floor: [] as number[],
    supplied: [] as number[],
    generated: [] as number[],
    repeatable: [] as number[],
    copied: [] as number[],
  };
  for (let round = 1 - warmUpRounds; round <= rounds; round++) {
    const { publicKey } = generateKeyPair('bench');
    const bottom = await timeMs(floor.write);
    const supplied = await timeMs(() => addKey({ public_key: publicKey.line }));
    const generated = await timeMs(() => addKey({}));
    const repeatable = await timeMs(() => addKey({}, crypto.randomUUID()));
    if (round <= 0) continue;
    times.floor.push(bottom);
    times.supplied.push(supplied);
    times.generated.push(generated);
    times.repeatable.push(repeatable);
  }
  for (let round = 0; round < copyRounds; round++) {
    times.copied.push(await timeMs(() => copyId(rig.dataDir, instance, keyPath)));
  }
  floor.close();
  const supplied = median(times.supplied);
  const generated = median(times.generated);
  const bottom = median(times.floor);
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  const detail = (value: number) => `${ms(value)}; floor ${ms(bottom)}`;
  const versusCopy = {
    name: 'ssh-copy-id / add a supplied key',
    ratio: median(times.copied) / supplied,
  };
  return [
    {
      name: 'add a supplied key / floor',
      ratio: supplied / bottom,
      detail: detail(supplied),
      goal: atMost(3),
    },
    {
      name: 'add a generated key / floor',
      ratio: generated / bottom,
      detail: detail(generated),
      goal: atMost(3),
    },
    {
      name: 'add a generated key, Idempotency-Key / floor',
      ratio: median(times.repeatable) / bottom,
      detail: detail(median(times.repeatable)),
    },
    { ...versusCopy, detail: `ssh-copy-id ${ms(median(times.copied))}` },
  ];
}

/** As clients in the field ask: one request, without the key that our own client adds for the sake of a retry. */
export function keyAdder(url: string, token: string) {
  return async (body: object, idempotencyKey?: string): Promise<void> => {
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      ...(idempotencyKey && { 'idempotency-key': idempotencyKey }),
    };
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
    await answer.arrayBuffer();
    if (answer.status !== 200) throw new Error(`add_key answered ${answer.status}`);
  };
}

async function makeInstance(
  rig: Rig,
  client: Client,
): Promise<{ instance: Instance; keyPath: string }> {
  const size = { cpu_cores: 1, disk_size_gb: 10, gpu_type: 'cpu', num_gpus: 1 } as const;
  const created = await client.createInstance({ ...size, mode: 'prototyping', template: 'base' });
  const keyPath = join(rig.dataDir, 'bench_key');
  writeFileSync(keyPath, created.key, { mode: 0o600 });
  for (;;) {
    const instance = await client.getInstance(created.uuid);
    if (instance.status === 'RUNNING') return { instance, keyPath };
    if (instance.failure) throw new Error(instance.failure);
    await sleep(20);
  }
}

/** What no implementation can do without: write, fsync, rename, fsync of the folder, and one SQLite commit. */
async function openFloor(dataDir: string) {
  const folder = join(dataDir, 'floor');
  await mkdir(folder);
  const database = new DatabaseSync(join(dataDir, 'floor.db'));
  database.exec(
    'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE keys (line TEXT)',
  );
  const insert = database.prepare('INSERT INTO keys VALUES (?)');
  const line = generateKeyPair('floor').publicKey.line;
  const write = async () => {
    const file = await open(join(folder, 'new'), 'w', 0o600);
    await file.writeFile(`${line}\n`);
    await file.sync();
    await file.close();
    await rename(join(folder, 'new'), join(folder, 'authorized_keys'));
    const directory = await open(folder, 'r');
    await directory.sync();
    await directory.close();
    insert.run(line);
  };
  return { write, close: () => database.close() };
}

/** `folder`: a home folder for it. */
export async function copyId(folder: string, instance: Instance, keyPath: string): Promise<void> {
  const path = join(folder, 'copied.pub');
  writeFileSync(path, `${generateKeyPair('copied').publicKey.line}\n`);
  mkdirSync(join(folder, '.ssh'), { recursive: true, mode: 0o700 });
  const settings = [
    'StrictHostKeyChecking=no',
    'UserKnownHostsFile=/dev/null',
    'LogLevel=ERROR',
    `IdentityFile=${keyPath}`,
  ];
  const options = settings.flatMap((setting) => ['-o', setting]);
  const env = { ...process.env, HOME: folder };
  const target = `ubuntu@${instance.ip}`;
  await run('ssh-copy-id', ['-f', '-i', path, '-p', String(instance.port), ...options, target], {
    env,
  });
}
