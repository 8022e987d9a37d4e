import { type Catalog, canAttach, type GpuType } from '../domain/catalog.ts';
import type { ServiceContext } from './context.ts';
import { withDeadline } from './engine-errors.ts';

const engineDeadlineMs = 5000;

/** What can be placed now. */
export interface Availability {
  readonly canPlace: (gpuType: GpuType) => boolean;
}

/** The catalog, and what of it the engine can place. */
export class CatalogService {
  readonly catalog: Catalog;
  readonly #context: ServiceContext;
  #asking: Promise<boolean> | undefined;

  constructor(context: ServiceContext, catalog: Catalog) {
    this.#context = context;
    this.catalog = catalog;
  }

  /** From the engine's health now and from what it can attach and start. An engine that does not answer places nothing. */
  async availability(): Promise<Availability> {
    const { capabilities } = this.#context.engine;
    const canPlaceAny = this.#startable().length > 0 && (await this.#isHealthy());
    return { canPlace: (gpuType) => canPlaceAny && canAttach(gpuType, capabilities) };
  }

  /** Sentences for the operator about what the catalog has and the engine cannot do. */
  notices(): string[] {
    const { name, capabilities } = this.#context.engine;
    const startable = this.#startable();
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
    ];
  }

  #startable() {
    const { templates } = this.#context.engine.capabilities;
    return this.catalog.templates.filter((template) => templates.includes(template.source));
  }

  /** Anybody may ask, so all who ask at once share one look at the engine. */
  #isHealthy(): Promise<boolean> {
    this.#asking ??= withDeadline(this.#context.engine.health(), engineDeadlineMs)
      .then(
        (health) => health.ok,
        () => false,
      )
      .finally(() => {
        this.#asking = undefined;
      });
    return this.#asking;
  }
}
