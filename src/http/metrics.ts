/** What Prometheus may read. Labels are words of ours: never an id, a name that somebody chose, or a path. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { AppError } from '../domain/errors.ts';
import type { Log } from '../services/context.ts';
import type { Statistics, StatisticsService } from '../services/statistics.ts';
import { bearerToken } from './auth.ts';
import { HttpStatistics } from './http-statistics.ts';
import type { RateLimiter } from './rate-limit.ts';
import { newRequestId } from './request-id.ts';
import { refuse } from './server.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The machine word of the error that it was answered with. */
    errorWord: string;
  }
}

const unknownRoute = '(unknown)';
const addKeyRoute = '/v1/instances/:id/add_key';

export interface MetricsOptions {
  readonly statistics: StatisticsService;
  readonly version: string;
  readonly log: Log;
}

export class Metrics {
  readonly http = new HttpStatistics();
  readonly #registry = new Registry();
  readonly #statistics: StatisticsService;
  readonly #log: Log;
  readonly #addKey: Counter<'outcome'>;
  readonly #counts: ReturnType<typeof countGauges>;

  constructor({ statistics, version, log }: MetricsOptions) {
    this.#statistics = statistics;
    this.#log = log;
    const registers = [this.#registry];
    collectDefaultMetrics({ register: this.#registry });
    this.#addKey = new Counter({
      name: 'berth_add_key_total',
      help: 'Requests to add a key to an instance, by outcome: done, or the machine word of the error.',
      labelNames: ['outcome'],
      registers,
    });
    this.#addKey.inc({ outcome: 'done' }, 0);
    this.#counts = countGauges(registers);
    new Gauge({
      name: 'berth_build_info',
      help: 'Always 1; the labels say what runs.',
      labelNames: ['version', 'node', 'engine'],
      registers,
    }).set({ version, node: process.version, engine: statistics.engineName }, 1);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Counts what the framework answers; the list's fast path counts for itself. */
  watch(app: FastifyInstance): void {
    app.decorateRequest('errorWord', '');
    app.addHook('onResponse', async (request, reply) => this.#count(request, reply));
  }

  #count(request: FastifyRequest, reply: FastifyReply): void {
    const route = request.is404 ? unknownRoute : (request.routeOptions.url ?? unknownRoute);
    const series = this.http.series(route, request.method, reply.statusCode);
    series.observe(reply.elapsedTime / 1000);
    if (route === addKeyRoute && request.method === 'POST')
      this.#addKey.inc({ outcome: request.errorWord || 'done' });
  }

  async text(): Promise<string> {
    const statistics = await this.#statistics.read().catch((error: unknown) => {
      this.#log.warn({ err: error }, 'statistics not read');
      return undefined;
    });
    this.#show(statistics);
    return `${await this.#registry.metrics()}\n${this.http.text()}`;
  }

  /** Without an answer of the database there are no counts: old ones would be a lie. */
  #show(statistics: Statistics | undefined): void {
    const { databaseUp, engineUp, instances, snapshots, operations } = this.#counts;
    databaseUp.set(statistics ? 1 : 0);
    engineUp.set(statistics?.engineUp ? 1 : 0);
    for (const gauge of [instances, snapshots, operations]) gauge.reset();
    for (const [status, count] of Object.entries(statistics?.instances ?? {}))
      instances.set({ status }, count);
    for (const [status, count] of Object.entries(statistics?.snapshots ?? {}))
      snapshots.set({ status }, count);
    for (const [state, count] of Object.entries(statistics?.operations ?? {}))
      operations.set({ state }, count);
  }
}

function countGauges(registers: Registry[]) {
  const up = (name: string, what: string) =>
    new Gauge({ name, help: `1 while the ${what} answers, else 0.`, registers });
  const of = <T extends string>(name: string, help: string, label: T) =>
    new Gauge({ name, help, labelNames: [label], registers });
  return {
    databaseUp: up('berth_database_up', 'database'),
    engineUp: up('berth_engine_up', 'engine'),
    instances: of('berth_instances', 'Instances by status.', 'status'),
    snapshots: of('berth_snapshots', 'Snapshots by status.', 'status'),
    operations: of('berth_operations', 'Operations by state; finished ones included.', 'state'),
  };
}

/** Two tokens of any length, compared in a time that says nothing about them. */
export function isSameToken(given: string, wanted: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}

/** `GET /metrics` beside the API: only ever with a token of its own. */
export const metricsRoute =
  (metrics: Metrics, token: string, limiter: RateLimiter): FastifyPluginAsync =>
  async (app) => {
    app.get(
      '/metrics',
      { config: { public: true }, schema: { hide: true } },
      async (request, reply) => {
        limiter.admitGuess(request, reply, () => false);
        if (!isSameToken(bearerToken(request.headers.authorization), token)) {
          limiter.countFailure(request, reply);
          throw new AppError('unauthorized', 'The metrics want the token in BERTH_METRICS_TOKEN.');
        }
        const text = await metrics.text();
        return reply.header('cache-control', 'no-store').type(metrics.contentType).send(text);
      },
    );
  };

/** The same on a listener of its own, where it is open unless there is a token. */
export function answerMetrics(metrics: Metrics, token: string | undefined) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const path = request.url?.split('?', 1)[0];
    const given = bearerToken(request.headers.authorization);
    if (path !== '/metrics' || request.method !== 'GET') refuse(response, 404);
    else if (token !== undefined && !isSameToken(given, token)) refuse(response, 401);
    else show(metrics, response);
  };
}

function show(metrics: Metrics, response: ServerResponse): void {
  const headers = { 'content-type': metrics.contentType, 'x-request-id': newRequestId() };
  metrics.text().then(
    (text) => response.writeHead(200, headers).end(text),
    () => refuse(response, 500),
  );
}
