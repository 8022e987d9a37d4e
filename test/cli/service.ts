import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readiness } from '../../src/api/service.ts';
import { claimPorts } from '../support/ports.ts';
import { type Environment, launcher } from './berth.ts';

export interface Service {
  readonly url: string;
  /** Why instances cannot be logged in to on this host; undefined when they can. */
  readonly noShells: string | undefined;
  /** Settings of this service, for `berth admin`. */
  readonly env: Environment;
  /** Stops it with all its instances, and removes its data. Fails with its output when it did not end well. */
  stop(): Promise<void>;
}

const startLimitMs = 60_000;

/** Starts the real service with `bin/berth serve`, on any port and on data of its own. */
export async function startService(base: Environment): Promise<Service> {
  const data = await mkdtemp(join(tmpdir(), 'berth-data-'));
  // The sandbox's unprivileged user has to pass through.
  await chmod(data, 0o711);
  const { from, to } = await claimPorts(20);
  const env = {
    ...base,
    BERTH_DATA: data,
    BERTH_SSH_PORTS: `${from}-${to}`,
    BERTH_SANDBOX_ON_EXIT: 'stop',
  };
  const args = ['serve', '--host', '127.0.0.1', '--port', '0'];
  const child = spawn(launcher, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const output = collectOutput(child);
  const closed = once(child, 'close');
  const stop = async () => {
    child.kill('SIGTERM');
    const [code, signal] = await closed;
    await rm(data, { recursive: true, force: true });
    if (code !== 0) throw new Error(`The service ended with ${code ?? signal}:\n${output()}`);
  };
  try {
    const url = await announcedUrl(child, output);
    return { url, noShells: await whyNoShells(url), env, stop };
  } catch (error) {
    await stop().catch(() => undefined);
    throw error;
  }
}

async function whyNoShells(url: string): Promise<string | undefined> {
  const response = await fetch(`${url}/readyz`);
  const readiness = (await response.json()) as Readiness;
  return readiness.capabilities.shells ? undefined : readiness.notices.join(' ');
}

/** What it has printed so far, on both streams. */
function collectOutput(child: ChildProcess): () => string {
  let output = '';
  const collect = (chunk: Buffer) => {
    output += chunk.toString();
  };
  child.stdout?.on('data', collect);
  child.stderr?.on('data', collect);
  return () => output;
}

function announcedUrl(child: ChildProcess, output: () => string): Promise<string> {
  return new Promise((resolve, reject) => {
    const fail = () => {
      clearTimeout(timer);
      reject(new Error(`The service did not start:\n${output()}`));
    };
    const timer = setTimeout(fail, startLimitMs);
    child.stdout?.on('data', () => {
      const url = /http:\/\/127\.0\.0\.1:[1-9][0-9]*/.exec(output())?.[0];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url);
    });
    child.once('close', fail);
  });
}
