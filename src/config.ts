import { hostname } from 'node:os';
import { resolve } from 'node:path';

/** Every setting of the service; frozen. README and docs/operations.md list the variables. */
export interface Config {
  readonly dataDir: string;
  readonly host: string;
  readonly port: number;
  /** Somebody chose the port: when it is taken, that is an error and not a reason to try the next one. */
  readonly portNamed: boolean;
  readonly databaseUrl: string;
  readonly engine: 'sandbox';
  readonly sshAddress: string;
  readonly sshPorts: { readonly from: number; readonly to: number };
  readonly sandboxUser: string;
  readonly sandboxNetwork: 'auto' | 'host';
  readonly sandboxOnExit: 'keep' | 'stop';
  readonly allowUnconfinedShells: boolean;
  readonly bodyLimitBytes: number;
  readonly logLevel: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent';
  readonly nodeName: string;
  /** For the crash suite: the point at which the process kills itself. */
  readonly crashAt: string | undefined;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** All that is wrong with the settings, in one error: nobody likes to mend them one at a time. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  constructor(problems: readonly string[]) {
    super(
      `These settings need mending:\n${problems.map((problem) => `  - ${problem}`).join('\n')}`,
    );
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
    engine: read.choice('BERTH_ENGINE', ['sandbox'], 'sandbox'),
    sshAddress: read.text('BERTH_SSH_ADDRESS', '127.0.0.1'),
    sshPorts: read.portRange('BERTH_SSH_PORTS', '22000-22999'),
    sandboxUser: read.text('BERTH_SANDBOX_USER', 'berth-sandbox'),
    sandboxNetwork: read.choice('BERTH_SANDBOX_NETWORK', ['auto', 'host'], 'auto'),
    sandboxOnExit: read.choice('BERTH_SANDBOX_ON_EXIT', ['keep', 'stop'], 'keep'),
    allowUnconfinedShells: read.flag('BERTH_SANDBOX_ALLOW_UNCONFINED_SHELLS'),
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

class Reader {
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

  finish(): void {
    if (this.#problems.length > 0) throw new ConfigError(this.#problems);
  }

  #bad<T>(problem: string, fallback: T): T {
    this.#problems.push(problem);
    return fallback;
  }
}
