/** Every engine there is. A new one is a folder and a line here. */

import type { Engine } from './engine.ts';
import { createIncusEngine, type IncusOptions } from './incus/incus.ts';
import { createSandboxEngine, type SandboxOptions } from './sandbox/sandbox.ts';

/** What each engine needs to open, by its name. */
export interface EngineOptions {
  readonly sandbox: SandboxOptions;
  readonly incus: IncusOptions;
}

export type EngineName = keyof EngineOptions;

const engines: { [Name in EngineName]: (options: EngineOptions[Name]) => Promise<Engine> } = {
  sandbox: createSandboxEngine,
  incus: createIncusEngine,
};

export const engineNames = Object.keys(engines) as readonly EngineName[];

/** @throws EngineError `unavailable` when the engine cannot work on this host at all. */
export function openEngine<Name extends EngineName>(
  name: Name,
  options: EngineOptions[Name],
): Promise<Engine> {
  return engines[name](options);
}
