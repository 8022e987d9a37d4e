/**
 * The whole program, composed by hand from top to bottom: reading this file explains what there is.
 */
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import { loadCatalog, loadSettings } from './catalog-loading.ts';
import type { Config, Environment } from './config.ts';
import {
  makeDataFolder,
  noteEngine,
  notePlannedStop,
  requireEngine,
  takePlannedStop,
} from './data-folder.ts';
import { type Catalog, defaultCatalog } from './domain/catalog.ts';
import { AppError } from './domain/errors.ts';
import { KeyedLock } from './domain/keyed-lock.ts';
import { openConfiguredEngine } from './engine-options.ts';
import type { Engine } from './engines/engine.ts';
import { buildApp } from './http/app.ts';
import type { Edge } from './http/edge.ts';
import type { TlsIdentity } from './http/tls.ts';
import { listen, openListeningEdge, portsOf, trustAdvice, version } from './listening.ts';
import { AuditService } from './services/audit.ts';
import { CatalogService } from './services/catalog.ts';
import type { ServiceContext } from './services/context.ts';
import { crashAt, listCrashPoints } from './services/crash-points.ts';
import { HealthService } from './services/health.ts';
import { InstanceConfiguration } from './services/instance-configuration.ts';
import { InstanceKeyService } from './services/instance-keys.ts';
import { InstanceKeyListService } from './services/instance-keys-list.ts';
import { InstanceModifyService } from './services/instance-modify.ts';
import { instanceOperations } from './services/instance-operations.ts';
import { InstanceService } from './services/instances.ts';
import { KeptAnswerService } from './services/kept-answers.ts';
import { KeyPlaceService } from './services/key-places.ts';
import { KeyReader } from './services/key-reader.ts';
import { KeySweeper } from './services/key-sweeper.ts';
import { KeyService } from './services/keys.ts';
import { Monitor } from './services/monitor.ts';
import { Placing } from './services/placing.ts';
import { Scheduler } from './services/scheduler.ts';
import { SnapshotListService } from './services/snapshot-list.ts';
import { snapshotOperations } from './services/snapshot-operations.ts';
import { SnapshotService } from './services/snapshots.ts';
import { TokenService } from './services/tokens.ts';
import { Worker } from './services/worker.ts';
import { openStore } from './store/database.ts';
import { listInstanceRefs } from './store/instances.ts';
import { releaseKeptAnswers } from './store/kept-answers.ts';
import { releaseLeases } from './store/operations.ts';
import { takeFileLock } from './store/sqlite.ts';

export interface RunningService {
  /** Where it answers, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly engine: Engine;
  /** Undefined: it speaks plain HTTP. */
  readonly tls: TlsIdentity | undefined;
  /** Ends open requests and running steps, then the engine and the database. */
  stop(): Promise<void>;
}

interface Settings {
  readonly config: Config;
  readonly catalog: Catalog;
}

interface Parts extends Settings {
  /** Resolves when what runs is as the database says. */
  readonly settled: Promise<void>;
}

/** How long callers wait for that at most: an engine that hangs must not keep them from everything else. */
const settlingPatienceMs = 5_000;

/** Starts the service and resolves once it listens. When it cannot, whatever it opened is closed again. */
export async function startService(config: Config): Promise<RunningService> {
  const closers = new AsyncDisposableStack();
  try {
    return await openService(config, closers);
  } catch (error) {
    await closers.disposeAsync();
    throw error;
  }
}

/** In the order in which things are opened here they are closed again, last first. */
async function openService(config: Config, closers: AsyncDisposableStack): Promise<RunningService> {
  const log = pino({ level: config.logLevel }, pino.destination({ dest: 2, sync: true }));
  const settings = { config, catalog: loadCatalog(config.catalogPath) };
  makeDataFolder(config.dataDir);
  const lock = takeFileLock(join(config.dataDir, 'service.lock'), 500);
  if (!lock)
    throw new AppError(
      'conflict',
      `Another Berth is running on the data folder ${config.dataDir}. Stop it, or choose another with --data.`,
    );
  closers.defer(lock.release);
  requireEngine(config.dataDir, config.engine);
  const store = await openStore(config.databaseUrl, (message) => log.warn(message));
  closers.defer(store.close);
  const engine = await openConfiguredEngine(config, log);
  noteEngine(config.dataDir, config.engine);
  const onExit = config.engine === 'incus' ? config.incus.onExit : config.sandboxOnExit;
  closers.defer(async () => {
    await engine.close({ stop: onExit === 'stop' ? await listInstanceRefs(store.db) : [] });
    if (onExit !== 'stop') return;
    try {
      notePlannedStop(config.dataDir);
    } catch (error) {
      log.warn({ err: error }, 'it was not noted that the instances were stopped on purpose');
    }
  });
  await store.freeingTransaction(async (tx) => {
    await releaseLeases(tx, config.nodeName, Date.now());
    await releaseKeptAnswers(tx, config.nodeName);
  });
  const context = { store, engine, log, now: Date.now, crashPoint: crashAt(config.crashAt) };
  const edge = await openListeningEdge(config, context, closers);
  const settling = Promise.withResolvers<void>();
  const parts = { ...settings, settled: settling.promise };
  const { app, scheduler, monitor, keySweeper, health } = await compose(parts, context, log, edge);
  for (const notice of (await engine.health()).notices) log.warn({ notice }, 'engine notice');
  await monitor.look('states', { afterPlannedStop: takePlannedStop(config.dataDir) });
  closers.defer(() => scheduler.stop());
  closers.defer(() => app.close());
  const url = await listen(app, config);
  closers.defer(() => health.stopping());
  // Only now: a published port must not take the one that the service itself is to have.
  scheduler.start();
  const patience = setTimeout(settling.resolve, settlingPatienceMs);
  await Promise.all([monitor.look(), Promise.race([keySweeper.look(), settling.promise])]);
  clearTimeout(patience);
  settling.resolve();
  log.info({ url }, 'listening');
  return { url, engine, tls: edge.tls, stop: () => closers.disposeAsync() };
}

async function compose(parts: Parts, context: ServiceContext, log: Logger, edge: Edge) {
  const { config, catalog, settled } = parts;
  const { sshPorts, nodeName } = config;
  const poke = () => scheduler.poke();
  const tokens = new TokenService(context);
  const keyLocks = new KeyedLock();
  const instanceKeys = new InstanceKeyService(context, keyLocks, (instance) =>
    keySweeper.requireFewLeft(instance),
  );
  const keyReader = new KeyReader(context);
  const instanceKeyList = new InstanceKeyListService(context, keyLocks, keyReader);
  const keysInFlight = instanceKeys.inFlight;
  const placing = new Placing(context, config.overcommit);
  const creation = { context, catalog, placing, sshPorts, poke, keysInFlight };
  const instances = new InstanceService(creation);
  const snapshots = new SnapshotService({ context, catalog, poke });
  const health = new HealthService(context);
  const snapshotsChanged = (orgId: string) => snapshots.changed(orgId);
  const kinds = operationKinds(parts, context, snapshotsChanged);
  const worker = new Worker({ ...context, kinds, owner: nodeName, onFinished: poke });
  const configuration = new InstanceConfiguration(context);
  const ownPorts = () => portsOf(config, app.server);
  const changes = { context, catalog, placing, configuration, sshPorts, ownPorts };
  const instanceModify = new InstanceModifyService(changes);
  const watching = { context, configuration, snapshotsChanged };
  const monitor = new Monitor({ ...watching, poke });
  const keySweeper = new KeySweeper({ context, keysInFlight, locks: keyLocks });
  const keptAnswers = new KeptAnswerService(context, nodeName);
  const scheduler = new Scheduler(worker, monitor, keySweeper, log, [() => keptAnswers.sweep()]);
  const { bodyLimitBytes } = config;
  const books = {
    keys: new KeyService(context),
    keyPlaces: new KeyPlaceService(context, keyReader),
  };
  const keyServices = { instanceKeys, instanceKeyList, ...books };
  const audit = new AuditService(context);
  const catalogs = new CatalogService(context, catalog, placing);
  for (const notice of catalogs.notices()) log.warn({ notice }, 'catalog notice');
  const app = await buildApp({
    tokens,
    catalogs,
    audit,
    keptAnswers,
    instances,
    instanceModify,
    ...keyServices,
    snapshots,
    snapshotList: new SnapshotListService(context, snapshots),
    health,
    log,
    bodyLimitBytes,
    edge,
    settled,
    version,
  });
  return { app, scheduler, monitor, keySweeper, health };
}

const operationKinds = (
  { config, catalog }: Settings,
  context: ServiceContext,
  changed: (orgId: string) => void,
) => [
  ...instanceOperations(context, config.sshPorts, catalog),
  ...snapshotOperations(context, changed),
];

/** `berth serve`: runs until SIGINT or SIGTERM. */
export async function runService(env: Environment): Promise<void> {
  const config = loadSettings(env);
  if (env.BERTH_TEST_LIST_CRASH_POINTS) return printCrashPoints(config);
  const service = await startService(config);
  const log = pino({ level: config.logLevel }, pino.destination(2));
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'a defect'));
  process.stdout.write(`Berth is listening on ${service.url}\n`);
  showTls(config, service);
  await untilSignal();
  await service.stop();
  // A copy that takes longer than the service was willing to wait ends here, and is made anew after the next start.
  process.exit(0);
}

function showTls(config: Config, { tls, url }: RunningService): void {
  if (!tls) return;
  process.on('SIGHUP', () => tls.reload());
  if (config.tls.kind === 'self-signed') process.stdout.write(`${trustAdvice(tls, url)}\n`);
}

/** One Ctrl-C may arrive twice: from the terminal, and from npm, which passes it on. */
const sameSignalMs = 1_000;

/** Resolves at the first SIGINT or SIGTERM; a second one, later than by chance, ends the process at once. */
export function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    let firstAt: number | undefined;
    const onSignal = () => {
      firstAt ??= performance.now();
      if (performance.now() - firstAt > sameSignalMs) process.exit(1);
      resolve();
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
  });
}

function printCrashPoints(config: Config): void {
  const unused = {} as ServiceContext;
  const settings = { config, catalog: defaultCatalog };
  for (const point of listCrashPoints(operationKinds(settings, unused, () => {})))
    process.stdout.write(`${point}\n`);
}
