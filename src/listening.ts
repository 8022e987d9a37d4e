/** The side of the service that faces the network: its certificate, its limits, its metrics, and the ports it listens on. */
import type { Server } from 'node:net';
import { hostname } from 'node:os';
import type { FastifyInstance } from 'fastify';
import packageJson from '../package.json' with { type: 'json' };
import type { Config } from './config.ts';
import { conflict } from './domain/errors.ts';
import { Callers } from './http/callers.ts';
import type { Edge } from './http/edge.ts';
import { answerMetrics, Metrics } from './http/metrics.ts';
import { RateLimiter } from './http/rate-limit.ts';
import { ensureSelfSigned, selfSignedNames } from './http/self-signed.ts';
import { openServer } from './http/server.ts';
import { type CertificateFiles, TlsIdentity } from './http/tls.ts';
import type { Log, ServiceContext } from './services/context.ts';
import { StatisticsService } from './services/statistics.ts';

export const { version } = packageJson;

const renewEveryMs = 6 * 3_600_000;

export async function openListeningEdge(
  config: Config,
  context: ServiceContext,
  closers: AsyncDisposableStack,
): Promise<Edge> {
  const { log, now } = context;
  const callers = new Callers(config.trustedProxies);
  const limiter = new RateLimiter({ limits: config.rateLimits, callers, now, log });
  const tls = await openTls(config, context, closers);
  const { address, token } = config.metrics;
  const isWanted = address !== undefined || token !== undefined;
  const statistics = new StatisticsService(context);
  const metrics = isWanted ? new Metrics({ statistics, version, log }) : undefined;
  if (metrics && address) await listenForMetrics(address, metrics, token, { closers, log });
  return { callers, limiter, tls, metrics, metricsToken: address ? undefined : token };
}

async function openTls(
  config: Config,
  { log, now }: ServiceContext,
  closers: AsyncDisposableStack,
): Promise<TlsIdentity | undefined> {
  if (config.tls.kind === 'none') return undefined;
  const tls = new TlsIdentity(await certificateFiles(config, config.tls, now), log);
  tls.watch();
  closers.defer(() => tls.close());
  if (config.tls.kind === 'self-signed') {
    const renew = () => certificateFiles(config, config.tls, now).catch(renewalFailed(log));
    const timer = setInterval(renew, renewEveryMs).unref();
    closers.defer(() => clearInterval(timer));
  }
  return tls;
}

const renewalFailed = (log: Log) => (error: unknown) =>
  log.error({ err: error }, 'certificate not renewed');

async function certificateFiles(
  config: Config,
  tls: Config['tls'],
  now: () => number,
): Promise<CertificateFiles> {
  if (tls.kind === 'files') return tls;
  const names = selfSignedNames(hostname(), config.host);
  return ensureSelfSigned({ folder: config.dataDir, names, nowMs: now() });
}

interface MetricsSurroundings {
  readonly closers: AsyncDisposableStack;
  readonly log: Log;
}

async function listenForMetrics(
  { host, port }: { host: string; port: number },
  metrics: Metrics,
  token: string | undefined,
  { closers, log }: MetricsSurroundings,
): Promise<void> {
  const server = openServer(answerMetrics(metrics, token));
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        conflict(
          `The metrics cannot be served on ${host}:${port} (${error.code}). Choose another BERTH_METRICS_ADDRESS.`,
        ),
      ),
    );
    server.listen({ host, port }, resolve);
  });
  closers.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  const bound = server.address();
  const boundPort = typeof bound === 'object' && bound ? bound.port : port;
  const shownHost = host.includes(':') ? `[${host}]` : host;
  log.info({ url: `http://${shownHost}:${boundPort}/metrics` }, 'metrics');
}

const portsToTry = 100;

/** The next free port when the usual one is taken and nobody named it. Resolves with the URL. */
export async function listen(app: FastifyInstance, config: Config): Promise<string> {
  for (let port = config.port; ; port++) {
    try {
      const url = await app.listen({ host: config.host, port });
      return config.tls.kind === 'none' ? url : url.replace(/^http:/, 'https:');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === undefined) throw error;
      if (code !== 'EADDRINUSE')
        throw conflict(
          `The service cannot listen on ${config.host}:${port} (${code}). Choose others with --host and --port.`,
        );
      if (config.portNamed || port >= config.port + portsToTry)
        throw conflict(`Port ${port} on ${config.host} is in use. Choose another with --port.`);
    }
  }
}

/** What whoever starts a trial has to know of its certificate. */
export function trustAdvice(tls: TlsIdentity, url: string): string {
  const { certFile } = tls.files;
  return [
    `Its certificate is self-signed; SHA-256 fingerprint ${tls.fingerprint}`,
    'To trust it:',
    `  curl --cacert ${certFile} ${url}/healthz`,
    `  berth login --url ${url} --ca ${certFile}    (or BERTH_CA=${certFile})`,
    `  NODE_EXTRA_CA_CERTS=${certFile}    (programs on Node.js)`,
  ].join('\n');
}

/** The ports that the service itself listens on, once it does. */
export function portsOf(config: Config, server: Server): number[] {
  const own = server.address();
  const api = own !== null && typeof own === 'object' ? [own.port] : [config.port];
  return [...api, ...(config.metrics.address ? [config.metrics.address.port] : [])];
}
