/** Opens Incus engines, each in a project and on a bridge of its own. */

import {
  createIncusEngine,
  type IncusEngine,
  type IncusOptions,
} from '../../src/engines/incus/incus.ts';
import { type IncusPlace, openIncusPlace } from '../support/incus.ts';
import type { PortRange } from '../support/ports.ts';
import { Bench } from './engine-contract.ts';

export interface OpenedIncus {
  readonly engine: IncusEngine;
  readonly place: IncusPlace;
  readonly options: IncusOptions;
  readonly cleanup: () => Promise<void>;
}

export function incusOptions(
  place: IncusPlace,
  sshPorts: PortRange,
  overrides: Partial<IncusOptions> = {},
): IncusOptions {
  const { network, pool, project, url } = place;
  return {
    endpoints: [url],
    tls: undefined,
    project,
    projectPerOrganization: false,
    pool,
    network,
    nvidiaRuntime: false,
    listenAddress: undefined,
    sshPorts,
    log: () => undefined,
    ...overrides,
  };
}

export async function openIncus(
  sshPorts: PortRange,
  overrides: Partial<IncusOptions> = {},
): Promise<OpenedIncus> {
  const place = await openIncusPlace();
  const options = incusOptions(place, sshPorts, overrides);
  const engine = await createIncusEngine(options);
  const cleanup = async (): Promise<void> => {
    await engine.close({ stop: [] });
    await place.remove();
  };
  return { engine, place, options, cleanup };
}

/** `opened`: what the bench has opened, once it is set up. */
export function incusBench(): { bench: Bench; opened: () => OpenedIncus } {
  let opened: OpenedIncus;
  const bench = new Bench(async (ports) => {
    opened = await openIncus(ports);
    return opened;
  });
  return { bench, opened: () => opened };
}
