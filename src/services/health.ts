import { AppError } from '../domain/errors.ts';
import type { EngineCapabilities } from '../engines/engine.ts';
import type { ServiceContext } from './context.ts';
import { withDeadline } from './engine-errors.ts';

const engineDeadlineMs = 5000;

export interface ReadyReport {
  readonly status: 'ready';
  readonly engine: string;
  readonly capabilities: EngineCapabilities;
  readonly notices: string[];
}

/** Can the service do its work right now? */
export class HealthService {
  readonly #context: ServiceContext;
  #stopping = false;

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** From now on the service says that it is not ready. */
  stopping(): void {
    this.#stopping = true;
  }

  /** Throws `unavailable` with the reason when store or engine do not answer. */
  async requireReady(): Promise<ReadyReport> {
    const { store, engine } = this.#context;
    if (this.#stopping) throw new AppError('unavailable', 'The service is shutting down.');
    await store.ping().catch((cause: unknown) => {
      throw new AppError('unavailable', 'The database does not answer.', { cause });
    });
    const health = await withDeadline(engine.health(), engineDeadlineMs).catch((cause: unknown) => {
      throw new AppError('unavailable', 'The engine does not answer.', { cause });
    });
    if (!health.ok)
      throw new AppError('unavailable', `The engine is not usable: ${health.notices.join(' ')}`);
    return {
      status: 'ready',
      engine: engine.name,
      capabilities: engine.capabilities,
      notices: [...health.notices],
    };
  }
}
