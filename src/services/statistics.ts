import { instanceStatuses, snapshotStatuses } from '../domain/lifecycle.ts';
import {
  type Counts,
  countInstances,
  countOperations,
  countSnapshots,
} from '../store/statistics.ts';
import type { ServiceContext } from './context.ts';
import { withDeadline } from './engine-errors.ts';

const engineDeadlineMs = 5000;
const operationStates = ['running', 'undoing', 'succeeded', 'failed'] as const;

/** How much there is of what, over all organizations; for whoever runs the service. */
export interface Statistics {
  readonly instances: Counts;
  readonly snapshots: Counts;
  readonly operations: Counts;
  readonly engineUp: boolean;
}

export class StatisticsService {
  readonly #context: ServiceContext;
  #underWay: Promise<Statistics> | undefined;

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  get engineName(): string {
    return this.#context.engine.name;
  }

  /** Whoever asks meanwhile gets the same answer: several scrapers cost no more than one. */
  read(): Promise<Statistics> {
    this.#underWay ??= this.#read().finally(() => {
      this.#underWay = undefined;
    });
    return this.#underWay;
  }

  async #read(): Promise<Statistics> {
    const { db } = this.#context.store;
    return {
      instances: { ...zeroes(instanceStatuses), ...(await countInstances(db)) },
      snapshots: { ...zeroes(snapshotStatuses), ...(await countSnapshots(db)) },
      operations: { ...zeroes(operationStates), ...(await countOperations(db)) },
      engineUp: await this.#isEngineUp(),
    };
  }

  async #isEngineUp(): Promise<boolean> {
    try {
      return (await withDeadline(this.#context.engine.health(), engineDeadlineMs)).ok;
    } catch {
      return false;
    }
  }
}

/** A series that is not there yet cannot be told from one that nobody counts. */
const zeroes = (labels: readonly string[]): Counts =>
  Object.fromEntries(labels.map((label) => [label, 0]));
