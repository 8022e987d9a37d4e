/**
 * `npm run quickstart`: from a fresh checkout to a running service with an instance one can log in to.
 * The first run makes everything and does the main job in front of the reader; later runs just start.
 */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { parseArgs } from 'node:util';
import { openAdmin } from '../src/admin.ts';
import { type Client, createClient } from '../src/api/client.ts';
import type { Instance } from '../src/api/instances.ts';
import { type Config, type Environment, loadConfig } from '../src/config.ts';
import { type RunningService, startService, untilSignal } from '../src/main.ts';
import { type Demo, loginLine, runDemo, waitForInstance } from './quickstart-demo.ts';
import { incusEnvironment, prepareIncus } from './quickstart-incus.ts';
import { readSavedState, type SavedState, writeSavedState } from './quickstart-state.ts';
import { ensureSystemPackages } from './system-packages.ts';

const usage = `Usage: npm run quickstart -- [options]

  --no-demo      start the service alone, without an instance and the demonstration
  --check        do all of it, then stop and exit 0 (all well) or 1
  --engine NAME  sandbox (the default), or incus: system containers. As root it installs Incus and sets it up
  --data DIR     the data folder (also BERTH_DATA; default: .berth in the checkout, .berth-incus with that engine)
  --host HOST    the address to listen on (also BERTH_HOST; default: 127.0.0.1)
  --port PORT    the port to listen on (also BERTH_PORT; default: 8080, or the next free one)
  --tls-self-signed  answer HTTPS, with a certificate made for this machine (also BERTH_TLS_SELF_SIGNED=true)
  --help         this text
`;

const say = (line = '') => process.stdout.write(`${line}\n`);
const organization = 'quickstart';

function readFlags() {
  const { values } = parseArgs({
    options: {
      demo: { type: 'boolean', default: true },
      check: { type: 'boolean', default: false },
      engine: { type: 'string' },
      data: { type: 'string' },
      host: { type: 'string' },
      port: { type: 'string' },
      'tls-self-signed': { type: 'boolean' },
      help: { type: 'boolean', short: 'h', default: false },
    },
    allowNegative: true,
  });
  if (values.check && !values.demo)
    throw new Error('--check does the demonstration, so it cannot go with --no-demo.');
  return values;
}

type Flags = ReturnType<typeof readFlags>;

/** Seen from where the reader stands: npm changes to the checkout first, and says in INIT_CWD where it was. */
const fromCaller = (path: string): string => resolve(process.env.INIT_CWD ?? '.', path);

/** The settings of a trial: quiet, and nothing is left running after Ctrl-C. Whatever is set already stays. */
function environment(flags: Flags): Environment {
  const engine = flags.engine ?? process.env.BERTH_ENGINE ?? 'sandbox';
  const isIncus = engine === 'incus';
  return {
    BERTH_LOG_LEVEL: 'error',
    BERTH_SANDBOX_ON_EXIT: 'stop',
    // One folder for each: what one engine holds, the other would miss.
    BERTH_DATA: join(import.meta.dirname, '..', isIncus ? '.berth-incus' : '.berth'),
    ...(isIncus && incusEnvironment(process.env)),
    ...process.env,
    BERTH_ENGINE: engine,
    ...(flags.data === undefined ? {} : { BERTH_DATA: fromCaller(flags.data) }),
    ...(flags.host === undefined ? {} : { BERTH_HOST: flags.host }),
    ...(flags.port === undefined ? {} : { BERTH_PORT: flags.port }),
    ...(flags['tls-self-signed'] ? { BERTH_TLS_SELF_SIGNED: 'true' } : {}),
  };
}

function flagsOrUsage(): Flags | undefined {
  try {
    return readFlags();
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
    return undefined;
  }
}

async function main(): Promise<number> {
  const flags = flagsOrUsage();
  if (!flags) return 2;
  if (flags.help) {
    say(usage);
    return 0;
  }
  const env = environment(flags);
  const config = loadConfig(env);
  const farewell = await prepare(config.engine, env);
  if (!farewell) return 1;
  say(`Starting Berth (data folder ${config.dataDir}) ...`);
  const service = await startService(config);
  const stopped = untilSignal();
  try {
    return await useService(flags, env, service, stopped);
  } finally {
    await service.stop();
    for (const line of farewell) say(line);
  }
}

/** Lines to end with; undefined when something is missing that cannot be had here. */
async function prepare(engine: Config['engine'], env: Environment): Promise<string[] | undefined> {
  if (engine === 'incus') return prepareIncus(env, say);
  return ensureSystemPackages(say) ? [] : undefined;
}

async function useService(
  flags: Flags,
  env: Environment,
  service: RunningService,
  stopped: Promise<void>,
): Promise<number> {
  const { dataDir, ...config } = loadConfig(env);
  for (const notice of (await service.engine.health()).notices) say(`Note: ${notice}`);
  const ca = service.tls?.files.certFile;
  if (ca !== undefined) trust(ca);
  const saved = readSavedState(dataDir);
  const { instance, login } = saved ?? {};
  const engine = config.engine === 'incus' ? config.engine : undefined;
  const state = { ...(await account(env, service.url, saved)), engine, ca, instance, login };
  writeSavedState(dataDir, state);
  const client = createClient({ baseUrl: state.url, token: state.token });
  let isStopping = false;
  void stopped.then(() => {
    isStopping = true;
  });
  // A step that Ctrl-C comes upon fails only because the service is going.
  const tell = (line?: string) => !isStopping && say(line);
  let failed = 0;
  if (flags.demo || flags.check)
    failed = await demonstrate({ flags, client, service, dataDir, state, stopped, tell });
  if (flags.check) return failed === 0 ? 0 : 1;
  tell(paste(readSavedState(dataDir) ?? state, dataDir));
  tell('Berth is running. Ctrl-C stops it; the next start finds everything as it was.');
  await stopped;
  say('\nStopping ...');
  await service.stop();
  say('Stopped.');
  return 0;
}

/** The requests of this program go to the service of this program, whose certificate nobody else vouches for. */
function trust(ca: string): void {
  setDefaultCACertificates([...getCACertificates('default'), readFileSync(ca, 'utf8')]);
}

/** The organization and its token: those of the last time, or new ones. */
async function account(
  env: Environment,
  url: string,
  saved: SavedState | undefined,
): Promise<{ url: string; token: string }> {
  if (saved && (await isValid(url, saved.token))) return { url, token: saved.token };
  const admin = await openAdmin(env);
  try {
    await admin.organizations
      .create({ name: organization, email: 'you@localhost' })
      .catch(() => undefined);
    const name = `quickstart ${new Date().toISOString().slice(0, 19)}Z`.replaceAll('T', ' ');
    const { token } = await admin.tokens.create({ organization, name });
    say(`Made the organization "${organization}" and a token.`);
    return { url, token };
  } finally {
    await admin.close();
  }
}

async function isValid(url: string, token: string): Promise<boolean> {
  const answer = await fetch(`${url}/v1/auth/validate`, {
    headers: { authorization: `Bearer ${token}` },
  });
  return answer.status === 200;
}

interface Stage {
  readonly flags: Flags;
  readonly client: Client;
  readonly service: RunningService;
  readonly dataDir: string;
  readonly state: SavedState;
  readonly stopped: Promise<void>;
  readonly tell: Demo['say'];
}

/** The main job, unless this data folder has seen it whole. Resolves with the number of steps that failed. */
async function demonstrate(stage: Stage): Promise<number> {
  const { flags, client, service, dataDir, state, tell } = stage;
  const known = await find(client, state.instance);
  if (known && state.login !== undefined && !flags.check) {
    // Its port may be another one than the last time.
    writeSavedState(dataDir, { ...state, login: loginLine(dataDir, known) });
    tell(`Found everything as it was: instance ${known.id} is ${known.status}.`);
    return 0;
  }
  const { shells } = service.engine.capabilities;
  const made = (instance: string) =>
    writeSavedState(dataDir, { ...state, instance, login: undefined });
  const demo: Demo = { client, dataDir, shells, say: tell, instance: known?.id, made };
  const result = await Promise.race([runDemo(demo), stage.stopped.then(() => undefined)]);
  if (!result) return 1;
  writeSavedState(dataDir, { ...state, instance: result.instance, login: result.login });
  tell(`\n${result.passed} passed, ${result.failed} failed, ${result.skipped} skipped\n`);
  return result.failed;
}

/** The instance of an earlier run, once it is up again; undefined when there is none. */
async function find(client: Client, instance: string | undefined): Promise<Instance | undefined> {
  if (instance === undefined) return undefined;
  const found = await client.getInstance(instance).catch(() => undefined);
  return found?.status === 'STARTING' ? waitForInstance(client, instance) : found;
}

function paste(state: SavedState, dataDir: string): string {
  const lines = [
    '',
    'To paste into another terminal:',
    '',
    `  export BERTH_URL=${state.url}`,
    `  export BERTH_TOKEN=${state.token}`,
  ];
  if (state.ca !== undefined) lines.push(`  export BERTH_CA=${state.ca}`);
  const curl = state.ca === undefined ? 'curl' : 'curl --cacert "$BERTH_CA"';
  if (state.instance !== undefined) {
    lines.push(
      '',
      '  # add a key to the running instance: a new private key comes back, once',
      `  ${curl} -X POST -H "Authorization: Bearer $BERTH_TOKEN" $BERTH_URL/v1/instances/${state.instance}/add_key`,
    );
  }
  lines.push(
    '  # list snapshots',
    `  ${curl} -H "Authorization: Bearer $BERTH_TOKEN" $BERTH_URL/v1/snapshots/list`,
  );
  if (state.login) lines.push('  # log in', `  ${state.login}`);
  lines.push(
    '',
    `The same settings are in ${join(dataDir, 'quickstart.env')}; the API is described at ${state.url}/docs.`,
    '',
  );
  return lines.join('\n');
}

try {
  process.exit(await main());
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
