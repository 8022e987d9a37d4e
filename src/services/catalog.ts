import { type Catalog, canAttach, findGpuType, type Spec } from '../domain/catalog.ts';
import type { Amounts, Wish } from '../domain/placement.ts';
import type { ServiceContext } from './context.ts';
import { withDeadline } from './engine-errors.ts';
import type { Placing } from './placing.ts';

const engineDeadlineMs = 5000;

/** What can be placed now. */
export interface Availability {
  readonly canPlace: (spec: Spec) => boolean;
}

/** The catalog, and what of it the engine can place. */
export class CatalogService {
  readonly catalog: Catalog;
  readonly #context: ServiceContext;
  readonly #placing: Placing;
  #asking: Promise<(wish: Wish) => boolean> | undefined;

  constructor(context: ServiceContext, catalog: Catalog, placing: Placing) {
    this.#placing = placing;
    this.#context = context;
    this.catalog = catalog;
  }

  /**
   * From the engine's health now, from what it can attach and start, and from the room that its hosts have for the
   * smallest instance of a spec. An engine that does not answer places nothing.
   */
  async availability(): Promise<Availability> {
    const { capabilities } = this.#context.engine;
    const templates = this.#startable();
    const fits = await this.#prospects();
    return {
      canPlace: (spec) => {
        const gpuType = findGpuType(this.catalog, spec.gpuType);
        if (!gpuType || !canAttach(gpuType, capabilities)) return false;
        const numGpus = spec.gpuCount;
        const amounts = smallestOf(spec);
        return templates.some(({ hosts, source }) => {
          const isVirtualMachine = capabilities.virtualMachines.includes(source);
          return fits({ amounts, gpuType, numGpus, hosts, isVirtualMachine });
        });
      },
    };
  }

  /** Sentences for the operator about what the catalog has and the engine cannot do. */
  notices(): string[] {
    const { name, capabilities } = this.#context.engine;
    const startable = this.#startable();
    const hosts = new Set(this.#namedHosts()).difference(
      new Set(capabilities.hosts.map((host) => host.name)),
    );
    const templates = this.catalog.templates.filter((template) => !startable.includes(template));
    const types = this.catalog.gpuTypes.filter((type) => !canAttach(type, capabilities));
    return [
      ...templates.map(
        ({ key, source }) =>
          `The template "${key}" of the catalog starts from "${source}", which the engine ${name} does not have: nobody can use it.`,
      ),
      ...types.map(
        (type) =>
          `The GPU type "${type.name}" of the catalog is attached by "${type.attach}", which the engine ${name} cannot do: nobody can use it.`,
      ),
      ...[...hosts].map(
        (host) =>
          `The catalog names the host "${host}", which the engine ${name} does not have: nothing is placed there.`,
      ),
    ];
  }

  #namedHosts(): string[] {
    const { templates, gpuTypes } = this.catalog;
    const ofDevices = gpuTypes.flatMap((type) => type.devices.flatMap(({ host = [] }) => host));
    return [...[...templates, ...gpuTypes].flatMap(({ hosts }) => hosts), ...ofDevices];
  }

  #startable() {
    const { templates } = this.#context.engine.capabilities;
    return this.catalog.templates.filter((template) => templates.includes(template.source));
  }

  /** Anybody may ask, so all who ask at once share one look at the engine and at the database. */
  #prospects(): Promise<(wish: Wish) => boolean> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #ask(): Promise<(wish: Wish) => boolean> {
    const isHealthy = await withDeadline(this.#context.engine.health(), engineDeadlineMs).then(
      (health) => health.ok,
      () => false,
    );
    return isHealthy ? this.#placing.prospects() : () => false;
  }
}

function smallestOf({ vcpuOptions, ramPerVcpuGib, storageGb, ephemeralStorageGb }: Spec): Amounts {
  const [cpuCores = 1] = vcpuOptions;
  const diskGb = storageGb.min + ephemeralStorageGb.min;
  return { cpuCores, memoryGb: cpuCores * ramPerVcpuGib, diskGb };
}
