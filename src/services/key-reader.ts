/**
 * Reads the key lines of instances. A file belongs to its guest, may be 1 MiB long and hold more than ten thousand keys,
 * and a caller may ask for many at once; all of it is read in the one thread that answers everybody. So an organization
 * has a few readings under way at a time, and each lets others go on after every few lines.
 */
import { setImmediate as others } from 'node:timers/promises';
import { type AuthorizedLine, eachKeyLine } from '../domain/authorized-keys.ts';
import { AppError } from '../domain/errors.ts';
import { SharedTurns } from '../domain/shared-turns.ts';
import type { InstanceRow } from '../store/schema.ts';
import type { ServiceContext } from './context.ts';
import { askEngine } from './engine-errors.ts';

const readingsAtOnce = 4;
const linesAtOnce = 100;

export interface Reading {
  /** For a turn, and then again for the engine. */
  readonly patienceMs: number;
  readonly deadlineMs: number;
}

export class KeyReader {
  readonly #context: ServiceContext;
  readonly #turns = new SharedTurns(readingsAtOnce);

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  /** The lines for which `keep` holds, in the order of the file. It may throw to end the reading. */
  async read(
    instance: InstanceRow,
    { patienceMs, deadlineMs }: Reading,
    keep: (line: AuthorizedLine) => boolean = () => true,
  ): Promise<AuthorizedLine[]> {
    const turn = await this.#turns.run(instance.org_id, patienceMs, async () => {
      const work = this.#context.engine.readKeys(instance.engine_ref);
      return pick(Buffer.from(await askEngine(work, deadlineMs)), keep);
    });
    if (turn) return turn.value;
    throw new AppError(
      'engine_timeout',
      'Your organization reads the keys of many instances at this moment. Try again in a minute.',
    );
  }
}

async function pick(
  file: Buffer,
  keep: (line: AuthorizedLine) => boolean,
): Promise<AuthorizedLine[]> {
  const kept: AuthorizedLine[] = [];
  let count = 0;
  for (const line of eachKeyLine(file)) {
    if (keep(line)) kept.push(line);
    count += 1;
    if (count % linesAtOnce === 0) await others();
  }
  return kept;
}
