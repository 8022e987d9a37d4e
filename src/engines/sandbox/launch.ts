/**
 * Starts the sshd of an instance, finds it again after the service was restarted, and ends it.
 *
 * There is no record of running instances: the process table is the record. The outermost process of an
 * instance (bwrap, or pasta around it) stays in the host's pid namespace under the guest's user and
 * carries the instance's folder and its endpoint on its command line. No guest can forge that, because
 * whatever it starts lives in another pid namespace. The chain below dies with its outermost process
 * (setpriv --pdeathsig), and the outermost process ends with sshd, so one identity stands for all.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Endpoint, EngineError, type EngineRef } from '../engine.ts';
import { CLEAN_ENVIRONMENT, dyingWithParent, runCommand } from './commands.ts';
import type { Host } from './host.ts';
import { countRounds, isolated } from './isolation.ts';
import { pastaArguments } from './own-network.ts';
import {
  descendantsOf,
  isAlive,
  isNeighbour,
  listPids,
  membersOf,
  type ProcessIdentity,
  type ProcessStat,
  pidNamespaceOf,
  readCommand,
  readStat,
  signal,
} from './processes.ts';

export interface Running {
  readonly ref: EngineRef;
  /** The outermost process. */
  readonly launcher: ProcessIdentity;
  readonly endpoint: Endpoint;
  /** How many processes down sshd is; its pid namespace is its own unless `unconfined`. */
  readonly depth: number;
  readonly unconfined: boolean;
  readonly ownNetwork: boolean;
}

export interface LaunchRequest {
  readonly ref: EngineRef;
  readonly instance: string;
  readonly hostname: string;
  readonly endpoint: Endpoint;
}

const GRACE_MS = 1_000;
const END_TIMEOUT_MS = 5_000;
const POLL_INTERVAL_MS = 5;
const DIAGNOSIS_TIMEOUT_MS = 5_000;
const ENDPOINT_MARK = 'BERTH_ENDPOINT=';

/** Names of the outermost program. */
const LAUNCHERS: ReadonlySet<string> = new Set(['bwrap', 'pasta', 'unshare']);

/** Starts it and returns at once; whether sshd answers is for the caller to see. */
export async function launch(request: LaunchRequest, host: Host): Promise<Running> {
  const words = launchCommand(request, host, 'serve');
  const child = spawn(words[0] ?? '', words.slice(1), {
    cwd: '/',
    env: launchEnvironment(request, host),
    // Nothing of the host is left open in there: sshd writes its log inside the sandbox.
    stdio: 'ignore',
    // A session of its own, so that it outlives the service and Ctrl-C in its terminal.
    detached: true,
    ...host.users.dropTo,
  });
  try {
    await once(child, 'spawn');
  } catch (cause) {
    throw new EngineError('failed', 'The instance could not be started.', { cause });
  }
  child.unref();
  const running = asRunning(child.pid ?? 0, words, request.ref, host);
  if (running !== undefined) return running;
  throw new EngineError('failed', 'The instance ended while it was started.', {
    detail: await diagnose(request, host),
  });
}

/** What sandbox and sshd say about their own settings, for the log. */
export async function diagnose(request: LaunchRequest, host: Host): Promise<string> {
  const words = launchCommand(request, host, 'check');
  const result = await runCommand(words[0] ?? '', words.slice(1), {
    identity: host.users.dropTo,
    timeoutMs: DIAGNOSIS_TIMEOUT_MS,
  });
  return `check ended with ${result.code}: ${result.stdout} ${result.stderr}`;
}

function launchCommand(request: LaunchRequest, host: Host, purpose: 'serve' | 'check'): string[] {
  const { tools } = host;
  const sshd = sshdCommand(request, host, purpose);
  if (!host.isolation) {
    return [required(tools.unshare, 'unshare', 'util-linux'), '--kill-child', '--', ...sshd];
  }
  const bwrap = required(tools.bwrap, 'bwrap', 'bubblewrap');
  const { setpriv } = tools;
  const { bwrapOptions } = host;
  const { hostname, instance } = request;
  const words = isolated({ bwrap, setpriv, bwrapOptions, hostname, instance }, sshd);
  if (!host.ownNetwork || tools.pasta === undefined) return words;
  // A check binds nothing, or it would meet the port it is to explain.
  const endpoint = {
    ip: request.endpoint.ip,
    port: purpose === 'serve' ? request.endpoint.port : undefined,
  };
  return [tools.pasta, ...pastaArguments(endpoint), '--', ...dyingWithParent(tools), ...words];
}

function sshdCommand(request: LaunchRequest, host: Host, purpose: 'serve' | 'check'): string[] {
  const { ip, port } = request.endpoint;
  const folder = host.isolation ? '/etc/ssh' : join(request.instance, 'system', 'ssh');
  const listen = ['-o', `Port=${port}`, '-o', `ListenAddress=${host.ownNetwork ? '0.0.0.0' : ip}`];
  const log = host.isolation ? ['-E', '/run/sshd.log'] : ['-e'];
  return [
    ...['/usr/bin/env', `${ENDPOINT_MARK}${ip}:${port}`],
    ...[
      required(host.tools.sshd, 'sshd', 'openssh-server'),
      '-f',
      join(folder, 'sshd_config'),
      ...listen,
    ],
    ...(purpose === 'serve' ? ['-D', ...log] : ['-t', '-e']),
  ];
}

function required(path: string | undefined, tool: string, packageName: string): string {
  if (path !== undefined) return path;
  throw new EngineError(
    'unavailable',
    `Instances cannot be started: ${tool} is missing on this host. Install it with: apt-get install ${packageName}`,
  );
}

/** On a host without namespaces the login name exists only through a library that answers for it. */
function launchEnvironment(request: LaunchRequest, host: Host): NodeJS.ProcessEnv {
  if (host.isolation || host.tools.nssWrapper === undefined) return CLEAN_ENVIRONMENT;
  return {
    ...CLEAN_ENVIRONMENT,
    LD_PRELOAD: host.tools.nssWrapper,
    NSS_WRAPPER_PASSWD: join(request.instance, 'system', 'passwd'),
    NSS_WRAPPER_GROUP: join(request.instance, 'system', 'group'),
  };
}

/** Every running instance whose folder lies in `instances`. */
export function findRunning(instances: string, host: Host): Running[] {
  return listPids().flatMap((pid) => {
    // First, so that nothing of a guest's process is read: neither believed nor waited for.
    if (!isNeighbour(pid)) return [];
    const command = readCommand(pid);
    if (command === undefined || command.uid !== host.users.guest.uid) return [];
    const ref = refIn(command.words, instances);
    return ref === undefined ? [] : (asRunning(pid, command.words, ref, host) ?? []);
  });
}

function refIn(words: readonly string[], instances: string): EngineRef | undefined {
  const prefix = `${instances}/`;
  const word = words.find((candidate) => candidate.startsWith(prefix));
  return word?.slice(prefix.length).split('/')[0];
}

function asRunning(
  pid: number,
  words: readonly string[],
  ref: EngineRef,
  { tools }: Host,
): Running | undefined {
  const launcherName = basename(words[0] ?? '');
  const mark = words.find((word) => word.startsWith(ENDPOINT_MARK))?.slice(ENDPOINT_MARK.length);
  const stat = readStat(pid);
  if (!LAUNCHERS.has(launcherName) || mark === undefined || stat === undefined) return undefined;
  const colon = mark.lastIndexOf(':');
  const endpoint = { ip: mark.slice(0, colon), port: Number(mark.slice(colon + 1)) };
  const launcher = { pid, startTicks: stat.startTicks };
  const unconfined = launcherName === 'unshare';
  const ownNetwork = launcherName === 'pasta';
  const depth = depthOf(launcherName, words, tools.bwrap);
  return { ref, launcher, endpoint, unconfined, ownNetwork, depth };
}

/** Each launcher is the parent of the next: pasta of bwrap, the outer bwrap of the inner one, that one of sshd. */
function depthOf(
  launcherName: string,
  words: readonly string[],
  bwrap: string | undefined,
): number {
  if (launcherName === 'unshare') return 1;
  return countRounds(words, bwrap) + (launcherName === 'pasta' ? 1 : 0);
}

/** The outermost process first, sshd last; shorter while the chain is being built up or torn down. */
function chainOf(running: Running): ProcessIdentity[] {
  const below = descendantsOf(running.launcher.pid);
  const chain: ProcessIdentity[] = [running.launcher];
  let parentPid = running.launcher.pid;
  for (let level = 0; level < running.depth; level += 1) {
    const next = below.find((stat) => stat.parentPid === parentPid);
    if (next === undefined) break;
    chain.push(next);
    parentPid = next.pid;
  }
  return chain;
}

/** sshd's process, which is process 1 of the instance's pid namespace; undefined when it is not (or no longer) there. */
export function firstProcessOf(running: Running): ProcessIdentity | undefined {
  const chain = chainOf(running);
  return chain.length === running.depth + 1 ? chain.at(-1) : undefined;
}

/** A process in the instance's own network and, of its namespaces, only in the one that owns that network. */
export function networkProcessOf(running: Running): ProcessIdentity | undefined {
  return running.ownNetwork ? chainOf(running)[1] : undefined;
}

/**
 * Asks the guest's processes to end, then ends sshd and all that is left. Returns when nothing is.
 * @throws EngineError `timeout` when a process stays, which takes a fault of the kernel or of storage.
 */
export async function end(running: Running): Promise<void> {
  const chain = chainOf(running);
  const first = chain.length === running.depth + 1 ? chain.at(-1) : undefined;
  const guests = guestsOf(running, first);
  await askToEnd(
    guests().filter((stat) => stat.pid !== first?.pid),
    guests,
  );
  for (const process of [...guests(), ...chain.toReversed()]) signal(process, 'SIGKILL');
  const deadline = performance.now() + END_TIMEOUT_MS;
  while (chain.some(isAlive) || guests().length > 0) {
    if (performance.now() > deadline) {
      throw new EngineError(
        'timeout',
        'The processes of the instance did not end. Try again later.',
      );
    }
    await sleep(POLL_INTERVAL_MS);
  }
}

/** Reads the guest's processes, sshd among them, as they are at each call. */
function guestsOf(running: Running, first: ProcessIdentity | undefined): () => ProcessStat[] {
  if (running.unconfined) {
    const known = descendantsOf(running.launcher.pid);
    return () => known.filter(isAlive);
  }
  const namespace = first === undefined ? undefined : pidNamespaceOf(first.pid);
  if (namespace === undefined || namespace === pidNamespaceOf('self')) return () => [];
  return () => membersOf(namespace);
}

/** An interactive shell ignores SIGTERM and ends at SIGHUP; a stopped process hears neither. */
async function askToEnd(asked: ProcessStat[], guests: () => ProcessStat[]): Promise<void> {
  for (const name of ['SIGTERM', 'SIGHUP', 'SIGCONT'] as const) {
    for (const process of asked) signal(process, name);
  }
  const deadline = performance.now() + GRACE_MS;
  const pids = new Set(asked.map((stat) => stat.pid));
  while (pids.size > 0 && guests().some((stat) => pids.has(stat.pid))) {
    if (performance.now() > deadline) return;
    await sleep(POLL_INTERVAL_MS);
  }
}
