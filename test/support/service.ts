/** The service as a child process, started the way an operator starts it. */

import { type ChildProcess, execFile, spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EngineView, incusView, sandboxView } from './engine-view.ts';
import { Guard } from './guard.ts';
import { engineUnderTest, type IncusPlace, type IncusServer, openIncusPlace } from './incus.ts';
import { claimPorts, type PortRange } from './ports.ts';
import { endSandboxes } from './processes.ts';
import { eventually } from './waiting.ts';

const REPOSITORY = join(import.meta.dirname, '..', '..');
const READY_LINE = /^Berth is listening on (https?:\/\/127\.0\.0\.1:\d+)$/gm;
const START_TIMEOUT_MS = 60_000;

export interface ServiceOptions {
  readonly sshPorts?: number;
  readonly environment?: Readonly<Record<string, string>>;
  /** Another one than that of the run. */
  readonly incus?: IncusServer;
  /** A command that runs `berth serve` as the words after it. */
  readonly under?: readonly string[];
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

function commandLine(words: readonly string[]): { file: string; words: string[] } {
  const launcher = join(REPOSITORY, 'bin', 'berth');
  if (existsSync(launcher)) return { file: launcher, words: [...words] };
  const node = join(REPOSITORY, 'node_modules', '.bin', 'node');
  return { file: node, words: [join(REPOSITORY, 'src', 'cli', 'main.ts'), ...words] };
}

/** Nothing of the person's own Berth, but the suite may be run for either kind of network and with any limits. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => /^BERTH_SANDBOX_(?:NETWORK|LIMITS)$/.test(name) || !/^(?:BERTH|NODE)_/.test(name),
  );
  return Object.fromEntries(kept);
}

function settingsFor(place: IncusPlace | undefined): Readonly<Record<string, string>> {
  if (place === undefined) return {};
  return {
    BERTH_ENGINE: 'incus',
    BERTH_INCUS_URL: place.url,
    BERTH_INCUS_POOL: place.pool,
    BERTH_INCUS_NETWORK: place.network,
    BERTH_INCUS_PROJECT: place.project,
    // Tests ask for much and use little, on machines of any size; what fits where has tests of its own.
    BERTH_OVERCOMMIT: 'cpu=100,memory=100,disk=100',
  };
}

function makeFolder(path: string): string {
  mkdirSync(path, { recursive: true });
  // The unprivileged user of the sandboxes has to pass through; mkdtemp alone gives 0700.
  chmodSync(path, 0o711);
  return path;
}

export class Service {
  /** Everything of this test: data, logs, keys. */
  readonly folder: string;
  readonly dataFolder: string;
  readonly logFile: string;
  readonly outputFile: string;
  readonly sshPorts: PortRange;
  private readonly environment: Readonly<Record<string, string>>;
  private readonly under: readonly string[];
  private child: ChildProcess | undefined;
  private exited: Promise<Exit> = Promise.resolve({ code: null, signal: null });
  private url = '';
  private readonly guard: Guard;
  /** Where it is in Incus; undefined on another engine. */
  readonly place: IncusPlace | undefined;
  /** What is there in truth. */
  readonly view: EngineView;

  private constructor(options: ServiceOptions, sshPorts: PortRange, place?: IncusPlace) {
    this.folder = makeFolder(mkdtempSync(join(tmpdir(), 'berth-test-')));
    this.dataFolder = makeFolder(join(this.folder, 'data'));
    this.logFile = join(this.folder, 'service.log');
    this.outputFile = join(this.folder, 'service.out');
    this.sshPorts = sshPorts;
    this.environment = { ...settingsFor(place), ...options.environment };
    this.under = options.under ?? [];
    this.place = place;
    this.view = place === undefined ? sandboxView(this.dataFolder) : incusView(place);
    this.guard = new Guard(this.folder);
  }

  /** A service with a data folder of its own, not yet started. */
  static async prepare(options: ServiceOptions = {}): Promise<Service> {
    const place = engineUnderTest === 'incus' ? await openIncusPlace(options.incus) : undefined;
    return new Service(options, await claimPorts(options.sshPorts ?? 24), place);
  }

  get baseUrl(): string {
    if (this.url === '') throw new Error('The service is not running.');
    return this.url;
  }

  get pid(): number | undefined {
    return this.child?.pid;
  }

  private env(extra: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
    return {
      ...cleanEnvironment(),
      BERTH_DATA: this.dataFolder,
      BERTH_HOST: '127.0.0.1',
      BERTH_PORT: '0',
      BERTH_SSH_PORTS: `${this.sshPorts.from}-${this.sshPorts.to}`,
      ...this.environment,
      ...extra,
    };
  }

  /** Spawns `berth serve`; `ready()` waits for its line. */
  launch(extra: Readonly<Record<string, string>> = {}): void {
    if (this.child !== undefined) throw new Error('The service already runs.');
    const output = openSync(this.outputFile, 'w');
    const log = openSync(this.logFile, 'a');
    const call = commandLine(['serve']);
    const [file = '', ...words] = [...this.under, call.file, ...call.words];
    const child = spawn(file, words, { env: this.env(extra), stdio: ['ignore', output, log] });
    closeSync(output);
    closeSync(log);
    this.child = child;
    this.guard.watch(child.pid);
    this.exited = new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code, signal) => {
        this.child = undefined;
        this.url = '';
        this.guard.watch(undefined);
        resolve({ code, signal });
      });
    });
  }

  /** Waits for the one ready line on stdout. */
  async ready(): Promise<void> {
    const url = await eventually('the ready line of `berth serve`', START_TIMEOUT_MS, async () => {
      if (this.child === undefined) return '';
      const lines = [...(await readFile(this.outputFile, 'utf8')).matchAll(READY_LINE)];
      return lines[0]?.[1];
    });
    if (url === '') throw new Error(`The service ended while starting.\n${await this.logTail()}`);
    this.url = url;
  }

  async start(extra: Readonly<Record<string, string>> = {}): Promise<void> {
    this.launch(extra);
    await this.ready();
  }

  /** Waits for the process to end by itself. */
  waitForExit(): Promise<Exit> {
    return this.exited;
  }

  /** Sends a signal and waits for the end. */
  async end(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): Promise<Exit> {
    this.child?.kill(signal);
    return this.exited;
  }

  /** Stops it cleanly; anything but exit code 0 within 10 s is an error. */
  async stop(signal: 'SIGTERM' | 'SIGINT' = 'SIGTERM'): Promise<void> {
    const timer = setTimeout(() => this.child?.kill('SIGKILL'), 10_000);
    const exit = await this.end(signal);
    clearTimeout(timer);
    if (exit.code === 0) return;
    throw new Error(`${signal} ended it with ${JSON.stringify(exit)}.\n${await this.logTail()}`);
  }

  async restart(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    if (signal === 'SIGKILL') await this.end(signal);
    else await this.stop(signal);
    await this.start();
  }

  /** `berth <words>` to its end, with the same environment; its stdout. */
  command(words: readonly string[], extra: Readonly<Record<string, string>> = {}): Promise<string> {
    const call = commandLine(words);
    const options = { env: this.env(extra), timeout: 20_000, encoding: 'utf8' as const };
    return new Promise((resolve, reject) => {
      execFile(call.file, call.words, options, (error, stdout, stderr) => {
        if (error === null) resolve(stdout);
        else reject(new Error(`berth ${words.join(' ')}: ${stderr}`, { cause: error }));
      });
    });
  }

  async logTail(): Promise<string> {
    return (await readFile(this.logFile, 'utf8').catch(() => '')).slice(-4000);
  }

  private endEverything(): void {
    endSandboxes(this.dataFolder);
    if (process.env.BERTH_TEST_KEEP === undefined) {
      rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
    }
  }

  /** Ends the service and every instance of it, and removes its folder (BERTH_TEST_KEEP=1 keeps it). */
  async dispose(): Promise<void> {
    await this.end('SIGKILL');
    this.endEverything();
    await this.place?.remove();
    this.guard.farewell();
  }
}
