import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { type IncusSettings, readIncus } from './config-incus.ts';
import { isNetwork } from './domain/addresses.ts';
import { defaultOvercommit, type Overcommit, parseOvercommit } from './domain/placement.ts';
import type { LimitSetting, RateLimits } from './http/rate-limit.ts';

/** Every setting of the service; frozen. README and docs/operations.md list the variables. */
export interface Config {
  readonly dataDir: string;
  readonly host: string;
  readonly port: number;
  /** Somebody chose the port: when it is taken, that is an error and not a reason to try the next one. */
  readonly portNamed: boolean;
  readonly databaseUrl: string;
  readonly engine: 'sandbox' | 'incus';
  /** The operator's catalog file; undefined: the built-in one, for a host without GPUs. */
  readonly catalogPath: string | undefined;
  readonly sshAddress: string;
  readonly sshPorts: { readonly from: number; readonly to: number };
  /** The one address of this host that ports of instances are published on. */
  readonly portsAddress: string;
  readonly sandboxUser: string;
  readonly sandboxNetwork: 'auto' | 'host';
  readonly sandboxLimits: 'auto' | 'off' | 'delegated';
  readonly sandboxOnExit: 'keep' | 'stop';
  readonly allowUnconfinedShells: boolean;
  readonly incus: IncusSettings;
  /** How many times what a host has may be promised to instances. */
  readonly overcommit: Overcommit;
  readonly bodyLimitBytes: number;
  readonly rateLimits: RateLimits;
  /** Addresses and networks of the proxies that are believed about whom they speak for. */
  readonly trustedProxies: readonly string[];
  readonly tls: TlsSetting;
  /** The listener of its own that the metrics have, and the token that they want; without either there are none. */
  readonly metrics: { readonly address?: HostAndPort; readonly token?: string };
  readonly logLevel: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent';
  readonly nodeName: string;
  /** For the crash suite: the point at which the process kills itself. */
  readonly crashAt: string | undefined;
}

export type TlsSetting =
  | { readonly kind: 'none' | 'self-signed' }
  | { readonly kind: 'files'; readonly certFile: string; readonly keyFile: string };

interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** All that is wrong with the settings, in one error: nobody likes to mend them one at a time. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(
      `These settings need mending:\n${problems.map((problem) => `  - ${problem}`).join('\n')}`,
    );
    this.problems = problems;
  }
}

/** The one reader of the environment. Throws `ConfigError` that names every bad setting. */
export function loadConfig(env: Environment): Config {
  const read = new Reader(env);
  const dataDir = resolve(read.text('BERTH_DATA', '.berth'));
  const config: Config = {
    dataDir,
    host: read.text('BERTH_HOST', '127.0.0.1'),
    port: read.integer('BERTH_PORT', 8080, 0, 65_535),
    portNamed: read.given('BERTH_PORT'),
    databaseUrl: read.text('BERTH_DATABASE_URL', `sqlite:${dataDir}/berth.db`),
    engine: read.choice('BERTH_ENGINE', ['sandbox', 'incus'], 'sandbox'),
    catalogPath: read.text('BERTH_CATALOG', '') || undefined,
    sshAddress: read.text('BERTH_SSH_ADDRESS', '127.0.0.1'),
    sshPorts: read.portRange('BERTH_SSH_PORTS', '22000-22999'),
    portsAddress: read.oneAddress('BERTH_PORTS_ADDRESS', '127.0.0.1'),
    sandboxUser: read.text('BERTH_SANDBOX_USER', 'berth-sandbox'),
    sandboxNetwork: read.choice('BERTH_SANDBOX_NETWORK', ['auto', 'host'], 'auto'),
    sandboxLimits: read.choice('BERTH_SANDBOX_LIMITS', ['auto', 'off', 'delegated'], 'auto'),
    sandboxOnExit: read.choice('BERTH_SANDBOX_ON_EXIT', ['keep', 'stop'], 'keep'),
    allowUnconfinedShells: read.flag('BERTH_SANDBOX_ALLOW_UNCONFINED_SHELLS'),
    incus: readIncus(read),
    rateLimits: {
      token: read.rateLimit('BERTH_RATE_LIMIT_TOKEN', '6000/60'),
      address: read.rateLimit('BERTH_RATE_LIMIT_ADDRESS', '12000/60'),
      failedAuth: read.rateLimit('BERTH_RATE_LIMIT_FAILED_AUTH', '60/60'),
    },
    trustedProxies: read.networks('BERTH_TRUSTED_PROXIES'),
    tls: read.tls(),
    metrics: read.metrics(),
    overcommit: read.overcommit(),
    bodyLimitBytes: read.integer('BERTH_BODY_LIMIT_BYTES', 65_536, 1024, 16_777_216),
    logLevel: read.choice(
      'BERTH_LOG_LEVEL',
      ['trace', 'debug', 'info', 'warn', 'error', 'silent'],
      'info',
    ),
    nodeName: read.text('BERTH_NODE_NAME', hostname()),
    crashAt: env.BERTH_TEST_CRASH_AT,
  };
  read.finish();
  return Object.freeze(config);
}

/** Reads one setting after the other, and remembers what is wrong. */
export class Reader {
  readonly #env: Environment;
  readonly #problems: string[] = [];

  constructor(env: Environment) {
    this.#env = env;
  }

  given(name: string): boolean {
    return (this.#env[name] ?? '') !== '';
  }

  text(name: string, fallback: string): string {
    return this.given(name) ? (this.#env[name] ?? fallback) : fallback;
  }

  integer(name: string, fallback: number, min: number, max: number): number {
    const text = this.text(name, String(fallback));
    const value = /^[0-9]{1,12}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    return this.#bad(
      `${name} is "${text}", but must be a whole number from ${min} to ${max}.`,
      fallback,
    );
  }

  choice<T extends string>(name: string, choices: readonly T[], fallback: T): T {
    const text = this.text(name, fallback);
    const found = choices.find((choice) => choice === text);
    return (
      found ??
      this.#bad(`${name} is "${text}", but must be one of ${choices.join(', ')}.`, fallback)
    );
  }

  flag(name: string): boolean {
    return this.choice(name, ['true', 'false', '1', '0'], 'false').match(/true|1/) !== null;
  }

  portRange(name: string, fallback: string): { from: number; to: number } {
    const text = this.text(name, fallback);
    const match = /^([0-9]{1,5})-([0-9]{1,5})$/.exec(text);
    const from = Number(match?.[1] ?? Number.NaN);
    const to = Number(match?.[2] ?? Number.NaN);
    if (from >= 1024 && to >= from && to <= 65_535) return { from, to };
    return this.#bad(`${name} is "${text}", but must be FROM-TO with ports from 1024 to 65535.`, {
      from: 0,
      to: 0,
    });
  }

  /** `N/SECONDS` or `off`. A default leaves callers on this machine alone, a limit that was set does not. */
  rateLimit(name: string, fallback: string): LimitSetting | undefined {
    const text = this.text(name, fallback);
    if (text === 'off') return undefined;
    const match = /^([0-9]{1,9})\/([0-9]{1,5})$/.exec(text);
    const requests = Number(match?.[1] ?? 0);
    const windowSeconds = Number(match?.[2] ?? 0);
    if (requests >= 1 && windowSeconds >= 1 && windowSeconds <= 86_400)
      return { requests, windowSeconds, sparesLocal: !this.given(name) };
    return this.#bad(
      `${name} is "${text}", but must be N/SECONDS such as ${fallback} (at most 86400 seconds), or off.`,
      undefined,
    );
  }

  networks(name: string): string[] {
    const networks = this.text(name, '')
      .split(/[\s,]+/)
      .filter((text) => text !== '');
    const wrong = networks.find((text) => !isNetwork(text));
    if (wrong === undefined) return networks;
    return this.#bad(
      `${name} has "${wrong}", but must be addresses or networks such as 10.0.0.2, 10.0.0.0/8 or fd00::/8, with commas between.`,
      [],
    );
  }

  overcommit(): Overcommit {
    const text = this.text('BERTH_OVERCOMMIT', 'cpu=4,memory=1,disk=1');
    const wrong = `BERTH_OVERCOMMIT is "${text}", but must be factors from 0.1 to 1000 such as cpu=4,memory=1,disk=1.`;
    return parseOvercommit(text) ?? this.#bad(wrong, defaultOvercommit);
  }

  tls(): TlsSetting {
    const [certFile, keyFile] = [this.text('BERTH_TLS_CERT', ''), this.text('BERTH_TLS_KEY', '')];
    const isSelfSigned = this.flag('BERTH_TLS_SELF_SIGNED');
    const none = { kind: isSelfSigned ? 'self-signed' : 'none' } as const;
    if (certFile === '' && keyFile === '') return none;
    if (isSelfSigned)
      return this.#bad(
        'BERTH_TLS_SELF_SIGNED goes without BERTH_TLS_CERT and BERTH_TLS_KEY.',
        none,
      );
    if (certFile !== '' && keyFile !== '')
      return { kind: 'files', certFile: resolve(certFile), keyFile: resolve(keyFile) };
    const [given, missing] = certFile === '' ? ['KEY', 'CERT'] : ['CERT', 'KEY'];
    return this.#bad(
      `BERTH_TLS_${given} is set, but BERTH_TLS_${missing} is not. Set both (or --tls-cert and --tls-key).`,
      none,
    );
  }

  metrics(): { address?: HostAndPort; token?: string } {
    const token = this.text('BERTH_METRICS_TOKEN', '');
    const name = 'BERTH_METRICS_ADDRESS';
    const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:[\]]+)):([0-9]{1,5})$/.exec(this.text(name, ''));
    const address = { host: match?.[1] ?? match?.[2] ?? '', port: Number(match?.[3] ?? 0) };
    if (this.given(name) && (!match || address.port > 65_535))
      this.#bad(`${name} must be HOST:PORT such as 127.0.0.1:9100 or [::1]:9100.`, undefined);
    // The value stays out of the message: it is a secret.
    if (token !== '' && !/^[\x21-\x7e]{16,512}$/.test(token))
      this.#bad('BERTH_METRICS_TOKEN must have 16 to 512 characters and no spaces.', undefined);
    return { ...(this.given(name) && { address }), ...(token !== '' && { token }) };
  }

  /** Not all addresses at once: servers in instances listen on some of them (sandbox/published-ports.ts). */
  oneAddress(name: string, fallback: string): string {
    const text = this.text(name, fallback);
    if (isIP(text) !== 0 && !['0.0.0.0', '::'].includes(text)) return text;
    return this.#bad(`${name} is "${text}", but must be one IP address of this host.`, fallback);
  }

  reject(problem: string): void {
    this.#problems.push(problem);
  }

  finish(): void {
    if (this.#problems.length > 0) throw new ConfigError(this.#problems);
  }

  #bad<T>(problem: string, fallback: T): T {
    this.#problems.push(problem);
    return fallback;
  }
}
