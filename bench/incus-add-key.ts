import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Instance } from '../src/api/instances.ts';
import { generateKeyPair } from '../src/domain/ssh-key-pair.ts';
import { GuestExec } from '../src/engines/incus/exec.ts';
import { appendCommand, status } from '../src/engines/incus/guest-key-scripts.ts';
import { instanceName } from '../src/engines/incus/names.ts';
import { copyId, keyAdder } from './add-key.ts';
import { type IncusRig, size, untilRunning } from './incus-rig.ts';
import { atMost, type Measurement, median, timeMs } from './measurement.ts';

const run = promisify(execFile);
const rounds = 150;
const warmUpRounds = 15;
const slowRounds = 7;
const crowd = 64;

interface Guest {
  readonly instance: Instance;
  readonly keyPath: string;
}

/** Add key against the one exec that it has to make, and against what people use instead. */
export async function benchIncusAddKey(rig: IncusRig): Promise<Measurement[]> {
  const guest = await makeGuest(rig);
  const addKey = keyAdder(`${rig.url}/v1/instances/${guest.instance.id}/add_key`, rig.token);
  const exec = rawExec(rig);
  const times = { ours: [] as number[], raw: [] as number[] };
  for (let round = 1 - warmUpRounds; round <= rounds; round++) {
    const ours = () => addKey({ public_key: newKey() });
    const raw = () => exec(guest.instance.uuid, newKey());
    const first = round % 2 === 0;
    const [one, other] = [await timeMs(first ? ours : raw), await timeMs(first ? raw : ours)];
    if (round <= 0) continue;
    times.ours.push(first ? one : other);
    times.raw.push(first ? other : one);
  }
  const ours = median(times.ours);
  const raw = median(times.raw);
  const bare = median(await timesOf(rounds, () => bareExec(rig, guest.instance.uuid)));
  const others = {
    'incus exec': await slowMedian(() => byIncusExec(rig, guest.instance.uuid)),
    'incus file push': await slowMedian(() => byFilePush(rig, guest.instance.uuid)),
    'ssh-copy-id': await slowMedian(() => copyId(rig.folder, guest.instance, guest.keyPath)),
  };
  return [
    {
      name: 'Incus: add a supplied key / one raw exec',
      ratio: ours / raw,
      detail: `${ours.toFixed(1)} ms; raw ${raw.toFixed(1)} ms`,
      goal: atMost(1.3),
    },
    {
      name: 'Incus: the same / that exec without streams',
      ratio: ours / bare,
      detail: `${bare.toFixed(1)} ms`,
    },
    ...Object.entries(others).map(([name, ms]) => ({
      name: `Incus: ${name} / add a supplied key`,
      ratio: ms / ours,
      detail: `${ms.toFixed(1)} ms`,
    })),
  ];
}

const newKey = (): string => generateKeyPair('bench').publicKey.line;

async function makeGuest({ client, folder }: IncusRig): Promise<Guest> {
  const created = await client.createInstance({ ...size, mode: 'prototyping', template: 'base' });
  const keyPath = join(folder, 'bench_key');
  writeFileSync(keyPath, created.key, { mode: 0o600 });
  return { instance: await untilRunning(client, created.uuid), keyPath };
}

/** The same program in the guest, and nothing else: no request, no record, no audit line. */
function rawExec({ place }: IncusRig) {
  const exec = new GuestExec(place.client);
  return async (uuid: string, line: string): Promise<void> => {
    const where = { name: instanceName(uuid), project: place.project };
    const command = () => programFor(line);
    requireLanded(await exec.run(where, performance.now() + 60_000, command));
  };
}

function programFor(line: string): string[] {
  const [, base64 = ''] = line.split(' ');
  const limits = { until: Math.floor(Date.now() / 1000) + 60, seconds: 60 };
  const nonce = crypto.randomUUID().replaceAll('-', '');
  return appendCommand(limits, { line, base64, since: 0, recent: 1, nonce });
}

function requireLanded(code: number): void {
  if (code !== status.landed) throw new Error(`the program in the guest ended with ${code}`);
}

/** The same once more in the way that lets a guest fill the host's disk (docs/decisions/0014). */
async function bareExec({ place }: IncusRig, uuid: string): Promise<void> {
  const body = {
    command: programFor(newKey()),
    ...{ user: 1000, group: 1000, cwd: '/', environment: { HOME: '/home/ubuntu' } },
    'wait-for-websocket': false,
  };
  const options = { project: place.project, timeoutMs: 60_000 };
  const path = `/1.0/instances/${instanceName(uuid)}/exec`;
  const ended = await place.client.change('POST', path, body, options);
  requireLanded((ended as { return: number }).return);
}

async function timesOf(times: number, work: () => Promise<unknown>): Promise<number[]> {
  const all: number[] = [];
  for (let round = 0; round < times; round++) all.push(await timeMs(work));
  return all;
}

const slowMedian = async (work: () => Promise<unknown>): Promise<number> =>
  median(await timesOf(slowRounds, work));

const incus = ({ incusDir, place }: IncusRig, ...words: string[]) =>
  run('incus', ['--project', place.project, ...words], {
    env: { ...process.env, INCUS_DIR: incusDir, INCUS_CONF: join(incusDir, 'bench-client') },
  });

/** As in recipes on the web: no lock, no flush. */
const byIncusExec = (rig: IncusRig, uuid: string) =>
  incus(
    rig,
    ...['exec', instanceName(uuid), '--user', '1000', '--', 'sh', '-c'],
    ...['printf "%s\\n" "$1" >> /home/ubuntu/.ssh/authorized_keys', 'sh', newKey()],
  );

/** The file whole, as that is all that a push can do. */
function byFilePush(rig: IncusRig, uuid: string) {
  const path = join(rig.folder, 'pushed_keys');
  writeFileSync(path, `${newKey()}\n`);
  const target = `${instanceName(uuid)}/home/ubuntu/pushed_keys`;
  return incus(rig, 'file', 'push', '--uid', '1000', '--gid', '1000', path, target);
}

/** As many adds at once as there are instances: with one raw exec each as the yardstick. */
export async function benchCrowd(rig: IncusRig): Promise<Measurement> {
  const created = [];
  for (let number = 0; number < crowd; number++) {
    const wanted = {
      ...size,
      mode: 'prototyping',
      template: 'base',
      public_key: newKey(),
    } as const;
    created.push(await rig.client.createInstance(wanted));
  }
  const running = await Promise.all(created.map(({ uuid }) => untilRunning(rig.client, uuid)));
  const exec = rawExec(rig);
  const times = { ours: [] as number[], raw: [] as number[] };
  for (let round = 0; round < 4; round++) {
    const ours = await timeMs(() =>
      Promise.all(
        running.map(({ id }) =>
          keyAdder(`${rig.url}/v1/instances/${id}/add_key`, rig.token)({ public_key: newKey() }),
        ),
      ),
    );
    const raw = await timeMs(() => Promise.all(running.map(({ uuid }) => exec(uuid, newKey()))));
    if (round === 0) continue;
    times.ours.push(ours);
    times.raw.push(raw);
  }
  const ours = median(times.ours);
  const each = ours / crowd;
  return {
    name: `Incus: ${crowd} adds on ${crowd} instances / raw`,
    ratio: ours / median(times.raw),
    detail: `${ours.toFixed(0)} ms for all, ${each.toFixed(1)} ms each`,
  };
}
