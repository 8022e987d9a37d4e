import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Client } from '../src/api/client.ts';
import type { Instance } from '../src/api/instances.ts';

const run = promisify(execFile);
const patienceMs = 60_000;
const keyFileName = 'quickstart_key';

export interface Demo {
  readonly client: Client;
  readonly dataDir: string;
  /** False where this host permits no isolation: then the logins are skipped. */
  readonly shells: boolean;
  readonly say: (line?: string) => void;
  /** An instance of an earlier run, to be used again. */
  readonly instance: string | undefined;
  /** Called as soon as an instance is accepted: a demonstration that is broken off is done again with it. */
  readonly made: (instance: string) => void;
}

export interface DemoResult {
  readonly instance: string;
  readonly login: string;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** Counts the steps, and tells the reader how each ended. */
class Steps {
  passed = 0;
  failed = 0;
  skipped = 0;
  readonly #say: Demo['say'];

  constructor(say: Demo['say']) {
    this.#say = say;
  }

  async do(title: string, work: () => Promise<string>): Promise<void> {
    this.#say(`\n> ${title}`);
    try {
      this.#say(indent(await work()));
      this.passed += 1;
    } catch (error) {
      this.#say(indent(`FAILED: ${error instanceof Error ? error.message : String(error)}`));
      this.failed += 1;
    }
  }

  skip(title: string, reason: string): void {
    this.#say(`\n> ${title}\n${indent(`skipped: ${reason}`)}`);
    this.skipped += 1;
  }
}

const indent = (text: string): string => text.trimEnd().replace(/^/gm, '  ');

/** The main job, through the public API and the real `ssh`, in front of the reader. */
export async function runDemo(demo: Demo): Promise<DemoResult> {
  const steps = new Steps(demo.say);
  const keyPath = join(demo.dataDir, keyFileName);
  const instance = await findOrCreate(demo, steps);
  const { id } = instance;
  const login = loginLine(demo.dataDir, instance);

  await steps.do(`Add a generated key: POST /v1/instances/${id}/add_key`, async () => {
    const answer = await demo.client.addKey(id);
    rmSync(keyPath, { force: true });
    writeFileSync(keyPath, answer.key, { mode: 0o600 });
    return `${answer.message.split(';')[0]}.\nIts private half, which is shown this once, is now in ${keyPath}`;
  });
  await logIn(demo, steps, instance, keyPath);
  await addSupplied(demo, steps, instance);
  await snapshot(demo, steps, id);
  return {
    instance: id,
    login,
    passed: steps.passed,
    failed: steps.failed,
    skipped: steps.skipped,
  };
}

/** To paste: host keys are kept by instance, because ports are used again, and no question is asked the first time. */
export function loginLine(dataDir: string, instance: Instance): string {
  const quote = (path: string) => (/^[\w./-]+$/.test(path) ? path : `"${path}"`);
  const settings = [
    `UserKnownHostsFile=${quote(join(dataDir, 'quickstart_known_hosts'))}`,
    `HostKeyAlias=${instance.uuid}`,
    'StrictHostKeyChecking=accept-new',
  ];
  const options = settings.map((setting) => `-o ${setting}`).join(' ');
  return `ssh -i ${quote(join(dataDir, keyFileName))} ${options} -p ${instance.port} ubuntu@${instance.ip}`;
}

async function findOrCreate(demo: Demo, steps: Steps): Promise<Instance> {
  const known =
    demo.instance === undefined
      ? undefined
      : await demo.client.getInstance(demo.instance).catch(() => undefined);
  // Somebody stopped it, or its last start failed.
  if (known?.status === 'STOPPED') await demo.client.startInstance(known.id);
  if (known) return waitForInstance(demo.client, known.id);
  let made: Instance | undefined;
  await steps.do('Create an instance: POST /v1/instances/create', async () => {
    const size = { cpu_cores: 1, disk_size_gb: 10, gpu_type: 'cpu', num_gpus: 1 } as const;
    const created = await demo.client.createInstance({
      ...size,
      mode: 'prototyping',
      template: 'base',
    });
    demo.made(String(created.identifier));
    made = await waitForInstance(demo.client, String(created.identifier));
    return `Instance ${made.id} (${made.uuid}) is ${made.status}; SSH answers on ${made.ip}:${made.port}.`;
  });
  if (!made)
    throw new Error(
      'There is no instance to go on with. BERTH_LOG_LEVEL=warn in front of the command shows what the engine said.',
    );
  return made;
}

export async function waitForInstance(client: Client, id: string): Promise<Instance> {
  const giveUpAt = Date.now() + patienceMs;
  for (;;) {
    const instance = await client.getInstance(id);
    if (instance.status === 'RUNNING') return instance;
    if (instance.failure) throw new Error(`Instance ${id}: ${instance.failure}`);
    if (Date.now() > giveUpAt)
      throw new Error(`Instance ${id} is still ${instance.status} after a minute.`);
    await sleep(50);
  }
}

async function logIn(demo: Demo, steps: Steps, instance: Instance, keyPath: string): Promise<void> {
  const title = `Log in: ssh -p ${instance.port} ubuntu@${instance.ip}`;
  if (!demo.shells)
    return steps.skip(
      title,
      'this host permits no isolation, so instances give no shell (see the note above)',
    );
  await steps.do(title, async () => {
    const question = 'echo "This is $(id -un) on $(uname -n); processors: $(nproc)."';
    const { stdout } = await run('ssh', [...sshOptions(keyPath, instance), question], {
      timeout: 20_000,
    });
    return stdout;
  });
}

/** The user's own configuration and known hosts stay out of it: every trial has new host keys on the same port. */
function sshOptions(keyPath: string, instance: Instance): string[] {
  const settings = [
    'BatchMode=yes',
    'IdentitiesOnly=yes',
    'StrictHostKeyChecking=no',
    'UserKnownHostsFile=/dev/null',
    'LogLevel=ERROR',
  ];
  const options = settings.flatMap((setting) => ['-o', setting]);
  return [
    '-F',
    'none',
    ...options,
    '-i',
    keyPath,
    '-p',
    String(instance.port),
    `ubuntu@${instance.ip}`,
  ];
}

async function addSupplied(demo: Demo, steps: Steps, instance: Instance): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'berth-quickstart-'));
  const keyPath = join(folder, 'id_ed25519');
  try {
    await steps.do(
      'Add a key of your own, and have the login proved: {"public_key": "...", "verify": true}',
      async () => {
        await run('ssh-keygen', [
          '-q',
          '-t',
          'ed25519',
          '-N',
          '',
          '-C',
          'quickstart',
          '-f',
          keyPath,
        ]);
        const public_key = readFileSync(`${keyPath}.pub`, 'utf8');
        return (await demo.client.addKey(instance.id, { public_key, verify: demo.shells })).message;
      },
    );
    await logIn(demo, steps, instance, keyPath);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function snapshot(demo: Demo, steps: Steps, id: string): Promise<void> {
  const name = `quickstart-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, '-')}`;
  await steps.do('Take a snapshot: POST /v1/snapshots/create', async () => {
    await demo.client.createSnapshot({ instanceId: id, name });
    await waitForSnapshot(demo.client, name);
    return `The snapshot "${name}" is READY.`;
  });
  await steps.do('List snapshots: GET /v1/snapshots/list', async () => {
    const list = await demo.client.listSnapshots();
    return `[${list.map((one) => JSON.stringify(one)).join(',\n ')}]`;
  });
}

async function waitForSnapshot(client: Client, name: string): Promise<void> {
  const giveUpAt = Date.now() + patienceMs;
  for (;;) {
    const found = (await client.listSnapshots()).find((one) => one.name === name);
    if (found?.status === 'READY') return;
    if (found?.status === 'FAILED')
      throw new Error(`The snapshot ${name} has failed; the log says why.`);
    if (Date.now() > giveUpAt) throw new Error(`The snapshot ${name} is not READY after a minute.`);
    await sleep(50);
  }
}
