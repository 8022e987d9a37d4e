/**
 * The whole program, composed by hand from top to bottom: reading this file explains what there is.
 */
import { accessSync, constants, existsSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { type Logger, pino } from 'pino';
import { type Config, type Environment, loadConfig } from './config.ts';
import { defaultCatalog } from './domain/catalog.ts';
import { AppError } from './domain/errors.ts';
import { KeyedLock } from './domain/keyed-lock.ts';
import type { Engine } from './engines/engine.ts';
import { openEngine } from './engines/registry.ts';
import { buildApp } from './http/app.ts';
import { AuditService } from './services/audit.ts';
import type { ServiceContext } from './services/context.ts';
import { crashAt, listCrashPoints } from './services/crash-points.ts';
import { HealthService } from './services/health.ts';
import { InstanceKeyService } from './services/instance-keys.ts';
import { InstanceKeyListService } from './services/instance-keys-list.ts';
import { instanceOperations } from './services/instance-operations.ts';
import { InstanceService } from './services/instances.ts';
import { Monitor } from './services/monitor.ts';
import { OrganizationService } from './services/organizations.ts';
import { Scheduler } from './services/scheduler.ts';
import { snapshotOperations } from './services/snapshot-operations.ts';
import { SnapshotService } from './services/snapshots.ts';
import { TokenService } from './services/tokens.ts';
import { Worker } from './services/worker.ts';
import { openStore, type Store } from './store/database.ts';
import { releaseLeases } from './store/operations.ts';
import { takeFileLock } from './store/sqlite.ts';

export interface RunningService {
  /** Where it answers, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly engine: Engine;
  /** Ends open requests and running steps, then the engine and the database. */
  stop(): Promise<void>;
}

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
  makeDataFolder(config.dataDir);
  const lock = takeFileLock(join(config.dataDir, 'service.lock'), 500);
  if (!lock)
    throw new AppError(
      'conflict',
      `Another Berth is running on the data folder ${config.dataDir}. Stop it, or choose another with --data.`,
    );
  closers.defer(lock.release);
  const store = await openStore(config.databaseUrl);
  closers.defer(store.close);
  const engine = await openEngine(config.engine, engineOptions(config, log));
  closers.defer(() => engine.close({ keepRunning: config.sandboxOnExit === 'keep' }));
  await releaseLeases(store.db, config.nodeName);
  const context = { store, engine, log, now: Date.now, crashPoint: crashAt(config.crashAt) };
  const { app, scheduler, monitor, health } = await compose(config, context, log);
  for (const notice of (await engine.health()).notices) log.warn({ notice }, 'engine notice');
  await monitor.look();
  closers.defer(() => scheduler.stop());
  scheduler.start();
  closers.defer(() => app.close());
  const url = await listen(app, config);
  closers.defer(() => health.stopping());
  log.info({ url }, 'listening');
  return { url, engine, stop: () => closers.disposeAsync() };
}

async function compose(config: Config, context: ServiceContext, log: Logger) {
  const { sshPorts, nodeName } = config;
  const catalog = defaultCatalog;
  const poke = () => scheduler.poke();
  const tokens = new TokenService(context);
  const keyLocks = new KeyedLock();
  const instanceKeys = new InstanceKeyService(context, keyLocks);
  const instanceKeyList = new InstanceKeyListService(context, keyLocks);
  const keysInFlight = instanceKeys.inFlight;
  const instances = new InstanceService({ context, catalog, sshPorts, poke, keysInFlight });
  const snapshots = new SnapshotService({ context, catalog, poke });
  const health = new HealthService(context);
  const kinds = operationKinds(config, context, (orgId) => snapshots.changed(orgId));
  const worker = new Worker({ ...context, kinds, owner: nodeName, onFinished: poke });
  const monitor = new Monitor({ context, poke, keysInFlight });
  const scheduler = new Scheduler(worker, monitor, log);
  const { bodyLimitBytes } = config;
  const keyServices = { instanceKeys, instanceKeyList };
  const audit = new AuditService(context);
  const app = await buildApp({
    tokens,
    audit,
    instances,
    ...keyServices,
    snapshots,
    health,
    log,
    bodyLimitBytes,
  });
  return { app, scheduler, monitor, health };
}

const operationKinds = (
  config: Config,
  context: ServiceContext,
  changed: (orgId: string) => void,
) => [...instanceOperations(context, config.sshPorts), ...snapshotOperations(context, changed)];

/**
 * Others may pass through the folder (the sandbox user reaches its disks), but not look into it. A folder that was
 * there before keeps its mode: it may hold more than ours.
 */
function makeDataFolder(path: string): void {
  try {
    if (existsSync(path)) accessSync(path, constants.W_OK | constants.X_OK);
    else makeFolder(path);
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code;
    throw new AppError(
      'conflict',
      `The data folder ${path} cannot be used (${reason}). Choose another with --data.`,
    );
  }
}

/** Step by step: a recursive mkdir never ends where nothing can be made, as in /proc. */
function makeFolder(path: string): void {
  if (!existsSync(dirname(path))) makeFolder(dirname(path));
  mkdirSync(path, { mode: 0o711 });
}

function engineOptions(config: Config, log: Logger) {
  return {
    dataDir: config.dataDir,
    listenAddress: config.sshAddress,
    allowUnconfinedShells: config.allowUnconfinedShells,
    network: config.sandboxNetwork,
    sandboxUser: config.sandboxUser,
    log: (
      level: 'info' | 'warn' | 'error',
      message: string,
      fields: Record<string, unknown> = {},
    ) => log[level](fields, message),
  };
}

const portsToTry = 100;

/** The next free port when the usual one is taken and nobody named it. */
async function listen(app: FastifyInstance, config: Config): Promise<string> {
  for (let port = config.port; ; port++) {
    try {
      return await app.listen({ host: config.host, port });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === undefined) throw error;
      if (code !== 'EADDRINUSE')
        throw new AppError(
          'conflict',
          `The service cannot listen on ${config.host}:${port} (${code}). Choose others with --host and --port.`,
        );
      if (config.portNamed || port >= config.port + portsToTry) {
        throw new AppError(
          'conflict',
          `Port ${port} on ${config.host} is in use. Choose another with --port.`,
        );
      }
    }
  }
}

/** `berth serve`: runs until SIGINT or SIGTERM. */
export async function runService(env: Environment): Promise<void> {
  const config = loadConfig(env);
  if (env.BERTH_TEST_LIST_CRASH_POINTS) return printCrashPoints(config);
  const service = await startService(config);
  const log = pino({ level: config.logLevel }, pino.destination(2));
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'a defect'));
  process.stdout.write(`Berth is listening on ${service.url}\n`);
  await untilSignal();
  await service.stop();
  // A copy that takes longer than the service was willing to wait ends here, and is made anew after the next start.
  process.exit(0);
}

/** Resolves at the first SIGINT or SIGTERM; a second one ends the process at once. */
export function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    let seen = 0;
    const onSignal = () => {
      seen += 1;
      if (seen > 1) process.exit(1);
      resolve();
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
  });
}

function printCrashPoints(config: Config): void {
  const unused = {} as ServiceContext;
  for (const point of listCrashPoints(operationKinds(config, unused, () => {})))
    process.stdout.write(`${point}\n`);
}

export interface Admin {
  createOrganization: OrganizationService['create'];
  createToken: OrganizationService['createToken'];
  close(): Promise<void>;
}

/** What `berth admin` uses: the database of this machine, beside a running service or without one. */
export async function openAdmin(env: Environment): Promise<Admin> {
  const config = loadConfig(env);
  makeDataFolder(config.dataDir);
  const store: Store = await openStore(config.databaseUrl);
  const organizations = new OrganizationService(store, Date.now);
  return {
    createOrganization: (input) => organizations.create(input),
    createToken: (input) => organizations.createToken(input),
    close: () => store.close(),
  };
}
