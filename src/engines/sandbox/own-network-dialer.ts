/**
 * Reaches the servers of an instance that has a network of its own.
 *
 * A socket belongs to the network in which it was made, whoever holds it. So a helper process of ours stands in the
 * instance's network: it is told a port, connects to it, and hands the connected socket up to the service. It asks
 * for the instance's own addresses alone, and stands where those of the host are out of reach. No byte of either side
 * passes through it, and it has no rights in there, nothing in its environment and no file of the host's but its own
 * program. It ends with the service, however that ends.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readlinkSync } from 'node:fs';
import { Socket } from 'node:net';
import { EngineError } from '../engine.ts';
import { CLEAN_ENVIRONMENT, collect } from './commands.ts';
import { CONNECT_TIMEOUT_MS, type Dialer } from './dialer.ts';
import type { Host, Tools } from './host.ts';
import { networkProcessOf, type Running } from './launch.ts';
import { isAlive } from './processes.ts';

const READY_TIMEOUT_MS = 10_000;
const ANSWER_TIMEOUT_MS = 2 * CONNECT_TIMEOUT_MS;
const LIFE_CHECK_INTERVAL_MS = 5_000;

export function canDialInto(tools: Tools): boolean {
  return tools.nsenter !== undefined && tools.setpriv !== undefined;
}

export function dialerInto(running: Running, host: Host): Dialer {
  let helper: Promise<Helper> | undefined;
  let isClosed = false;
  const close = (): void => {
    isClosed = true;
    clearInterval(lifeCheck);
    helper?.then(
      (found) => found.end(),
      () => undefined,
    );
  };
  const lifeCheck = setInterval(() => isAlive(running.launcher) || close(), LIFE_CHECK_INTERVAL_MS);
  lifeCheck.unref();
  /** One that has ended is replaced by the next connection. */
  const current = (): Promise<Helper> => {
    if (isClosed) throw notRunning();
    if (helper !== undefined) return helper;
    const started = Helper.start(running, host, () => {
      if (helper === started) helper = undefined;
    });
    helper = started;
    return started;
  };
  return {
    ready: async () => void (await current()),
    dial: async (port) => (await current()).dial(port),
    close,
  };
}

class Helper {
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, (socket: Socket | undefined) => void>();
  private nextId = 1;

  private constructor(child: ChildProcess) {
    this.child = child;
    child.on('error', () => undefined);
    child.once('disconnect', () => this.end());
    child.on('message', (message: { id?: number } | null, handle: unknown) => {
      const socket = handle instanceof Socket ? handle : undefined;
      const answer = this.waiting.get(message?.id ?? 0);
      // Not an option of a socket that comes from another process.
      if (socket) socket.allowHalfOpen = true;
      if (answer === undefined) socket?.destroy();
      else answer(socket);
    });
    child.once('exit', () => {
      for (const answer of this.waiting.values()) answer(undefined);
    });
  }

  /** `ended` is called once, also when it does not come to a start. */
  static async start(running: Running, host: Host, ended: () => void): Promise<Helper> {
    try {
      const child = spawnIn(running, host);
      child.once('exit', ended);
      const complaint = child.stderr ? collect(child.stderr) : () => '';
      await answered(child).catch((cause: unknown) => {
        throw new EngineError('failed', 'The network of the instance could not be entered.', {
          cause,
          detail: complaint(),
        });
      });
      return new Helper(child);
    } catch (error) {
      ended();
      throw error;
    }
  }

  dial(port: number): Promise<Socket> {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      const answer = (socket: Socket | undefined): void => {
        clearTimeout(timer);
        this.waiting.delete(id);
        if (socket === undefined) reject(new Error('nobody answers on the port'));
        else resolve(socket);
      };
      const timer = setTimeout(() => answer(undefined), ANSWER_TIMEOUT_MS);
      this.waiting.set(id, answer);
      this.child.send({ id, port }, (error) => error && answer(undefined));
    });
  }

  end(): void {
    this.child.kill('SIGKILL');
  }
}

/** Descriptors, because the number of a process may be another one's by the time that it is used. */
function spawnIn(running: Running, { tools, users }: Host): ChildProcess {
  const inside = networkProcessOf(running);
  if (inside === undefined) throw notRunning();
  const files: number[] = [];
  try {
    for (const path of ['self/exe', `${inside.pid}/ns/user`, `${inside.pid}/ns/net`])
      files.push(openSync(`/proc/${path}`, 'r'));
    const isElsewhere =
      readlinkSync(`/proc/${inside.pid}/ns/net`) !== readlinkSync('/proc/self/ns/net');
    if (!isAlive(inside) || !isElsewhere) throw notRunning();
    return spawn(tools.nsenter ?? '', helperArguments(tools), {
      cwd: '/',
      env: CLEAN_ENVIRONMENT,
      stdio: ['ignore', 'ignore', 'pipe', 'ipc', ...files],
      // Ctrl-C in the service's terminal is not for the helper.
      detached: true,
      ...users.dropTo,
    });
  } finally {
    for (const file of files) closeSync(file);
  }
}

/** Node itself is run by its descriptor: its folder may be closed to the user of the sandboxes. */
function helperArguments(tools: Tools): string[] {
  return [
    ...['--user=/proc/self/fd/5', '--net=/proc/self/fd/6', '--preserve-credentials', '--'],
    ...[tools.setpriv ?? '', '--pdeathsig', 'KILL', '--no-new-privs'],
    ...['--bounding-set=-all', '--inh-caps=-all', '--', '/proc/self/fd/4'],
    ...['--eval', `(${serve})(${CONNECT_TIMEOUT_MS})`],
  ];
}

function answered(child: ChildProcess): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => child.kill('SIGKILL'), READY_TIMEOUT_MS);
    const fail = (reason: unknown): void => {
      clearTimeout(timer);
      reject(reason);
    };
    child.once('error', fail);
    child.once('exit', (code, signal) => fail(new Error(`it ended with ${code ?? signal}`)));
    child.once('message', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

const notRunning = (): EngineError =>
  new EngineError('not_running', 'The instance is not running, so its ports lead nowhere.');

/** What the helper runs. It gets there as text, so it can use nothing of this file. */
function serve(timeoutMs: number): void {
  const { connect } = process.getBuiltinModule('node:net');
  const { networkInterfaces } = process.getBuiltinModule('node:os');
  // Not IPv6: an address that is still being checked for others who have it is not reached here but outside.
  const own = () =>
    Object.values(networkInterfaces()).flatMap((all = []) =>
      all.filter((one) => !one.internal && one.family === 'IPv4').map((one) => one.address),
    );
  const dial = (id: number, port: number, [host, ...others]: string[]): void => {
    if (host === undefined) return void process.send?.({ id });
    // Paused: what the server says first is for the service to read.
    const socket = connect({ host, port, allowHalfOpen: true }).pause();
    let isLate = false;
    socket.setTimeout(timeoutMs, () => {
      isLate = true;
      socket.destroy(new Error('late'));
    });
    socket.once('error', () => dial(id, port, isLate ? [] : others));
    socket.once('connect', () => {
      socket.setTimeout(0);
      process.send?.({ id }, socket);
    });
  };
  process.on('message', ({ id, port }: { id: number; port: number }) =>
    dial(id, port, ['127.0.0.1', '::1', ...own()]),
  );
  process.send?.('ready');
}
