/** Opens the engine that the settings name, with what it needs of them. */

import type { Logger } from 'pino';
import type { Config } from './config.ts';
import type { Engine } from './engines/engine.ts';
import { type EngineOptions, openEngine } from './engines/registry.ts';

/** @throws EngineError `unavailable` when the engine cannot work on this host at all. */
export function openConfiguredEngine(config: Config, log: Logger): Promise<Engine> {
  if (config.engine === 'incus') return openEngine('incus', incusOptions(config, log));
  return openEngine('sandbox', sandboxOptions(config, log));
}

export function sandboxOptions(config: Config, log: Logger): EngineOptions['sandbox'] {
  return {
    dataDir: config.dataDir,
    listenAddress: config.sshAddress,
    portsAddress: config.portsAddress,
    allowUnconfinedShells: config.allowUnconfinedShells,
    network: config.sandboxNetwork,
    limits: config.sandboxLimits,
    sandboxUser: config.sandboxUser,
    log: logInto(log),
  };
}

export function incusOptions(config: Config, log: Logger): EngineOptions['incus'] {
  const { incus, sshPorts } = config;
  return { ...incus, sshPorts, log: logInto(log) };
}

const logInto =
  (log: Logger) =>
  (level: 'info' | 'warn' | 'error', message: string, fields: Record<string, unknown> = {}): void =>
    log[level](fields, message);
