/** What `berth admin engine` and the quickstart do with the place where instances live, without a service. */

import { type Logger, pino } from 'pino';
import { openImages } from './admin-images.ts';
import {
  findUnknown,
  hasDatabase,
  hasDataOfEngine,
  leftoverAdvice,
  leftoverFindings,
  listNames,
} from './admin-leftovers.ts';
import { type Config, type Environment, loadConfig } from './config.ts';
import type { Finding } from './domain/findings.ts';
import { incusOptions, sandboxOptions } from './engine-options.ts';
import { guardRules } from './engines/incus/bridge-guard.ts';
import { checkIncus } from './engines/incus/check.ts';
import { checkGuard } from './engines/incus/check-host.ts';
import { IncusClient } from './engines/incus/client.ts';
import { IncusError } from './engines/incus/incus-error.ts';
import { listHeld } from './engines/incus/leftovers.ts';
import { isolateGuests, readBridge } from './engines/incus/network.ts';
import { applyGuard, ensureNetwork, ensurePool } from './engines/incus/setup.ts';
import { checkSandbox } from './engines/sandbox/check.ts';

export type { Finding };

export interface EngineReport {
  readonly name: string;
  readonly findings: readonly Finding[];
}

/** The template that an instance starts from when nobody names one. */
const defaultTemplate = 'base';
const silent = (): Logger => pino({ level: 'silent' });

/** What is there, what is missing, how to mend it. */
export async function checkEngine(env: Environment): Promise<EngineReport> {
  const config = loadConfig(env);
  const name = config.engine;
  if (name === 'sandbox')
    return { name, findings: await checkSandbox(sandboxOptions(config, silent())) };
  return withIncus(config, async (client, options) => {
    const findings = await checkIncus(client, options);
    findings.push(...(await checkGuard(client, options)));
    return { name, findings: [...findings, ...(await checkLeftovers(config, client))] };
  });
}

async function checkLeftovers(config: Config, client: IncusClient): Promise<Finding[]> {
  if (!hasDataOfEngine(config)) return [];
  try {
    const held = await listHeld(client, incusOptions(config, silent()));
    return leftoverFindings(await findUnknown(config, held), config.dataDir);
  } catch (error) {
    // An Incus that does not answer is a finding already.
    if (error instanceof IncusError) return [];
    throw error;
  }
}

/** Where Berth has no data yet: what an earlier one left in Incus, in a sentence; undefined when there is nothing. */
export async function describeLeftovers(env: Environment): Promise<string | undefined> {
  const config = loadConfig(env);
  if (hasDatabase(config)) return undefined;
  const held = await withIncus(config, listHeld);
  if (held.length === 0) return undefined;
  return `Incus holds what another Berth made, or one whose data are gone: ${listNames(held)}. New instances may want the same addresses. ${leftoverAdvice(held)}`;
}

/** Rules for `nft -f -` on every host of the Incus engine (bridge-guard.ts). */
export async function printGuard(env: Environment): Promise<string> {
  return withIncus(loadConfig(env), async (client, options) =>
    guardRules(await readBridge(client, options.network), options.sshPorts),
  );
}

/**
 * Makes what is missing in an Incus on this machine: pool, network, isolation, default image. What is there stays as it
 * is.
 */
export async function setUpIncus(
  env: Environment,
  incusDir: string,
  say: (line: string) => void,
): Promise<void> {
  const config = loadConfig(env);
  await withIncus(config, async (client, options) => {
    const { pool, network, sshPorts } = options;
    const setup = { client, incusDir, pool, network, sshPorts, say };
    await ensurePool(setup);
    await ensureNetwork(setup);
    if (await isolateGuests(client, network))
      say('Instances are shut off from this host and from each other.');
    await applyGuard(guardRules(await readBridge(client, network), sshPorts));
  });
  await ensureImage(env, say);
}

async function ensureImage(env: Environment, say: (line: string) => void): Promise<void> {
  const images = openImages(env);
  try {
    const known = await images.list();
    if (known.some(({ template }) => template === defaultTemplate)) return;
    say('Building the default image from packages (once; about a minute) ...');
    await images.build(defaultTemplate, {}, (line) => say(`  ${line.trim()}`));
  } finally {
    images.close();
  }
}

async function withIncus<T>(
  config: Config,
  work: (client: IncusClient, options: ReturnType<typeof incusOptions>) => Promise<T>,
): Promise<T> {
  const options = incusOptions(config, silent());
  const client = new IncusClient(options);
  try {
    return await work(client, options);
  } catch (error) {
    // An operator wants to know what Incus said.
    if (error instanceof IncusError) throw new Error(`Incus: ${error.message}`, { cause: error });
    throw error;
  } finally {
    client.close();
  }
}
