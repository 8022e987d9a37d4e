/**
 * Starts Incus and what it needs, and stops it again. Nothing here is tied to one place: the tests run daemons of
 * their own beside the one of the machine.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { IncusClient } from '../src/engines/incus/client.ts';
import { turnOnBridgeFilter } from './bridge-filter.ts';
import { raiseKernelLimits } from './kernel-limits.ts';

type Say = (line: string) => void;

/** The state folder of the machine's own Incus. */
export const systemIncusDir = '/var/lib/incus';
export const lxcfsDir = '/var/lib/lxcfs';
const daemonFolders = ['/usr/libexec/incus', '/opt/incus/bin', '/usr/lib/incus', '/usr/sbin'];
const subordinateFiles = ['/etc/subuid', '/etc/subgid'];
const startPatienceMs = 60_000;

export interface DaemonOptions {
  /** Its state folder (`INCUS_DIR`): socket, database, storage pools. */
  readonly incusDir: string;
  /** What it prints; default: `incusd.log` in the state folder. */
  readonly logFile?: string;
  /** Default: `incusd.pid` in the state folder. */
  readonly pidFile?: string;
  /** Words put before the command, such as `nsenter ...` for a network of its own. */
  readonly prefix?: readonly string[];
  readonly say?: Say;
}

export interface Daemon {
  readonly incusDir: string;
  readonly socketPath: string;
  /** Undefined: systemd minds it, or somebody else did start it. */
  readonly pid: number | undefined;
  readonly pidFile: string;
  readonly how: 'found' | 'systemd' | 'by hand';
}

export const socketOf = (incusDir: string): string => join(incusDir, 'unix.socket');

/** True where systemd is process 1, and not merely installed. */
export const hasSystemd = (): boolean => existsSync('/run/systemd/system');

/** Absolute path of `incusd`, which is kept out of everybody's PATH; undefined when it is not installed. */
export const findDaemon = (): string | undefined =>
  daemonFolders.map((folder) => join(folder, 'incusd')).find((path) => existsSync(path));

/** Uses the daemon that runs, or starts one, with its requirements. Resolves once it is ready for work. */
export async function ensureIncusDaemon(options: DaemonOptions): Promise<Daemon> {
  const { incusDir, say = () => {} } = options;
  const socketPath = socketOf(incusDir);
  // Instances see their own limits only if this was there before the first of them was started.
  ensureLxcfs(say);
  raiseKernelLimits(say);
  turnOnBridgeFilter(say);
  const pid = pidOf(options);
  const daemon = { incusDir, socketPath, pid, pidFile: pidFileOf(options) };
  if (await isReady(socketPath)) return { ...daemon, how: 'found' };
  ensureSubordinateIds(say);
  if (incusDir === systemIncusDir && hasSystemd()) {
    say('Starting Incus with systemd ...');
    execFileSync('systemctl', ['start', 'incus.socket', 'incus.service'], { stdio: 'inherit' });
    await untilReady(options, undefined);
    return { ...daemon, pid: undefined, how: 'systemd' };
  }
  if (pid === undefined) say(`Starting Incus by hand (state folder ${incusDir}) ...`);
  const started = pid ?? startByHand(options);
  await untilReady(options, started);
  return { ...daemon, pid: started, how: 'by hand' };
}

/** In a session of its own and with its output in a file: it goes on when whoever started it ends. */
function startByHand(options: DaemonOptions): number {
  const { incusDir, prefix = [] } = options;
  const program = findDaemon();
  if (program === undefined) throw new Error('Incus is not installed: there is no incusd.');
  mkdirSync(incusDir, { recursive: true, mode: 0o711 });
  mkdirSync(dirname(logFileOf(options)), { recursive: true });
  const group = hasGroup('incus-admin') ? ['--group', 'incus-admin'] : [];
  const [file = program, ...args] = [...manyFiles(), ...prefix, program, ...group];
  const log = openSync(logFileOf(options), 'a', 0o600);
  const child = spawn(file, args, {
    cwd: '/',
    detached: true,
    stdio: ['ignore', log, log],
    env: {
      PATH: `${dirname(program)}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
      HOME: '/root',
      LANG: 'C.UTF-8',
      INCUS_DIR: incusDir,
    },
  });
  child.unref();
  if (child.pid === undefined) throw new Error(`${file} could not be started.`);
  writeFileSync(pidFileOf(options), `${child.pid}\n`);
  // The npm scripts turn off what is in their own core dumps (run.sh); guests have theirs as the kernel makes them.
  const filter = `/proc/${child.pid}/coredump_filter`;
  if (existsSync(filter)) writeFileSync(filter, '0x33');
  return child.pid;
}

/** Where that is allowed. Each guest and each client takes some; Incus itself raises the soft limit to the hard one. */
function manyFiles(): readonly string[] {
  const limit = '--nofile=:1048576';
  const { status } = spawnSync('prlimit', [limit, 'true'], { stdio: 'ignore' });
  return status === 0 ? ['prlimit', limit] : [];
}

export interface StopOptions {
  /** SIGPWR shuts its instances down, too; SIGTERM leaves them running; SIGKILL is for tests of crashes. */
  readonly signal?: 'SIGPWR' | 'SIGTERM' | 'SIGKILL';
  readonly patienceMs?: number;
}

/** Ends a daemon that was started by hand, and waits for its end. */
export async function stopIncusDaemon(
  daemon: Daemon,
  { signal = 'SIGPWR', patienceMs = 60_000 }: StopOptions = {},
): Promise<void> {
  const { pid } = daemon;
  if (pid === undefined) throw new Error('This Incus was not started by hand; not stopping it.');
  const giveUpAt = Date.now() + patienceMs;
  if (isIncusd(pid)) process.kill(pid, signal);
  while (isIncusd(pid)) {
    if (Date.now() > giveUpAt)
      throw new Error(`incusd (process ${pid}) did not end within ${patienceMs} ms.`);
    await sleep(50);
  }
  rmSync(daemon.pidFile, { force: true });
}

/** After its end: takes away what it left mounted below its state folder, deepest first. */
export function unmountBelow(folder: string): void {
  const points = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => (line.split(' ')[1] ?? '').replaceAll('\\040', ' '))
    .filter((path) => path.startsWith(`${folder}/`));
  for (const point of points.toReversed()) spawnSync('umount', ['-l', point], { stdio: 'ignore' });
}

const logFileOf = (options: DaemonOptions): string =>
  options.logFile ?? join(options.incusDir, 'incusd.log');
const pidFileOf = (options: DaemonOptions): string =>
  options.pidFile ?? join(options.incusDir, 'incusd.pid');

/** The process that the pid file names, if it is still an incusd: numbers are used again. */
function pidOf(options: DaemonOptions): number | undefined {
  const path = pidFileOf(options);
  const pid = existsSync(path) ? Number(readFileSync(path, 'utf8').trim()) : Number.NaN;
  return pid > 0 && isIncusd(pid) ? pid : undefined;
}

/**
 * Whether this process is an incusd. One that has ended and that nobody has collected yet has an empty command line; so
 * has, for a moment, one that is just becoming another program (execve(2)), but that has a program.
 */
export function isIncusd(pid: number): boolean {
  const folder = `/proc/${pid}`;
  try {
    const command = readFileSync(`${folder}/cmdline`, 'latin1');
    return command.includes('incusd') || (command === '' && readlinkSync(`${folder}/exe`) !== '');
  } catch {
    return false;
  }
}

async function untilReady(options: DaemonOptions, pid: number | undefined): Promise<void> {
  const giveUpAt = Date.now() + startPatienceMs;
  while (!(await isReady(socketOf(options.incusDir)))) {
    const ended = pid !== undefined && !isIncusd(pid);
    if (ended || Date.now() > giveUpAt) throw new Error(complaint(options, ended));
    await sleep(100);
  }
}

function complaint(options: DaemonOptions, ended: boolean): string {
  const what = ended ? 'Incus ended right after its start' : 'Incus does not answer';
  const path = logFileOf(options);
  if (!existsSync(path)) return `${what}. See: journalctl -u incus`;
  return `${what}. The end of ${path}:\n${lastLines(path)}`;
}

const lastLines = (path: string): string =>
  readFileSync(path, 'utf8').trimEnd().split('\n').slice(-12).join('\n');

/** The end of its log when a daemon that was started by hand has ended; undefined while it runs. */
export const lastWords = (options: DaemonOptions, { pid }: Daemon): string | undefined =>
  pid === undefined || isIncusd(pid) ? undefined : lastLines(logFileOf(options));

/** The API answers before all is loaded; this call says when it is. */
async function isReady(socketPath: string): Promise<boolean> {
  if (!existsSync(socketPath)) return false;
  const client = new IncusClient({
    endpoints: [`unix:${socketPath}`],
    tls: undefined,
    project: 'default',
  });
  try {
    await client.get('/internal/ready', { timeoutMs: 5000 });
    return true;
  } catch {
    return false;
  } finally {
    client.close();
  }
}

/** Without it an instance sees the host's memory and processors in place of its own limits. False: it is not to be had. */
export function ensureLxcfs(say: Say = () => {}): boolean {
  const isMounted = () => existsSync(join(lxcfsDir, 'proc/meminfo'));
  if (isMounted()) return true;
  if (hasSystemd()) {
    spawnSync('systemctl', ['start', 'lxcfs.service'], { stdio: 'ignore' });
    return isMounted();
  }
  if (!existsSync('/usr/bin/lxcfs') || !existsSync('/dev/fuse')) {
    say('lxcfs cannot run here: instances will show the memory of the host as theirs.');
    return false;
  }
  // Of one that was killed there is a mount left that answers nothing.
  spawnSync('umount', ['-l', lxcfsDir], { stdio: 'ignore' });
  mkdirSync(lxcfsDir, { recursive: true });
  say('Starting lxcfs ...');
  spawn('/usr/bin/lxcfs', [lxcfsDir], { cwd: '/', detached: true, stdio: 'ignore' }).unref();
  const giveUpAt = Date.now() + 5000;
  while (!isMounted() && Date.now() < giveUpAt) spawnSync('sleep', ['0.05']);
  return isMounted();
}

/** Ids that instances' users are mapped to; Debian's own range for that. */
export function ensureSubordinateIds(say: Say = () => {}): void {
  for (const file of subordinateFiles) {
    const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
    if (/^root:/m.test(text)) continue;
    say(`Giving root a range of subordinate ids in ${file} ...`);
    const newLine = text === '' || text.endsWith('\n') ? '' : '\n';
    appendFileSync(file, `${newLine}root:1000000:1000000000\n`);
  }
}

const hasGroup = (name: string): boolean =>
  new RegExp(`^${name}:`, 'm').test(readFileSync('/etc/group', 'utf8'));
