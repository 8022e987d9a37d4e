import { ApiError, type Client, UnreachableError } from '../api/client.ts';
import type { Instance } from '../api/instances.ts';
import { parseReference } from '../domain/ids.ts';
import { CliError, exitCodes } from './exit-codes.ts';
import { withProgress } from './progress.ts';
import type { Terminal } from './terminal.ts';

/** Finds `<instance>`: a number, a UUID, or a name. A number is never taken for a name. */
export async function findInstance(client: Client, reference: string): Promise<Instance> {
  if (parseReference(reference)) return client.getInstance(reference);
  const instances = Object.values(await client.listInstances());
  const named = instances.filter((instance) => instance.name === reference);
  const [first, ...others] = named;
  if (!first) {
    throw new CliError(
      `There is no instance "${reference}". See them all with: berth instance list`,
      exitCodes.notFound,
    );
  }
  if (others.length === 0) return first;
  const numbers = named.map((instance) => instance.id).join(', ');
  throw new CliError(
    `Several instances are named "${reference}": give one of the numbers ${numbers}.`,
  );
}

export interface Target {
  /** For a path of the API. */
  readonly id: string;
  readonly uuid?: string;
  /** How to speak of it to the user. */
  readonly label: string;
}

/**
 * For commands that change an instance: the API takes a number or a UUID itself, so these go through, and a
 * token that may change but not look can be used. Only a name has to be looked up.
 */
export async function findTarget(client: Client, reference: string): Promise<Target> {
  const parsed = parseReference(reference);
  if (parsed) return { id: reference, label: reference, ...('uuid' in parsed && parsed) };
  const { id, uuid } = await findInstance(client, reference);
  return { id: uuid, uuid, label: id };
}

/** Undefined when the token may not look at instances. */
export async function lookIfAllowed(client: Client, id: string): Promise<Instance | undefined> {
  try {
    return await client.getInstance(id);
  } catch (error) {
    if (isRefusal(error)) return undefined;
    throw error;
  }
}

const isRefusal = (error: unknown): boolean => error instanceof ApiError && error.status === 403;

export interface StatusGoal {
  readonly goal: Instance['status'];
  /** Statuses that cannot lead to the goal any more. */
  readonly dead: readonly Instance['status'][];
}

export const untilRunning: StatusGoal = { goal: 'RUNNING', dead: ['STOPPED', 'UNKNOWN'] };
export const untilStopped: StatusGoal = { goal: 'STOPPED', dead: ['RUNNING', 'UNKNOWN'] };

/** Waits for a status, with progress on stderr; fails when it cannot be reached or takes too long. */
export async function waitForStatus(
  terminal: Terminal,
  client: Client,
  uuid: string,
  { goal, dead }: StatusGoal,
): Promise<Instance> {
  return withProgress(terminal, `Waiting until the instance is ${goal}`, async (update) =>
    poll(terminal, `berth instance show ${uuid}`, async () => {
      const instance = (await lookIfAllowed(client, uuid)) ?? refuseWait();
      const { id, status, failure } = instance;
      if (status === goal) return instance;
      if (dead.includes(status)) {
        throw new CliError(
          `Instance ${id} is ${status} and will not be ${goal}. ${failure ?? ''}`.trim(),
        );
      }
      update(`Instance ${id} is ${status}, waiting until it is ${goal}`);
      return undefined;
    }),
  );
}

function refuseWait(): never {
  throw new CliError(
    'The service has accepted this and goes on with it, but to wait for the end the token needs the scope instances:read. Without it, say --no-wait.',
    exitCodes.auth,
  );
}

const firstPauseMs = 100;
const longestPauseMs = 1000;
const timeLimitMs = 10 * 60_000;
const silenceLimitMs = 30_000;

/**
 * Asks until there is an answer. A service that restarts meanwhile is given 30 s to come back, as what is
 * waited for goes on without it. `lookAgain` is the command with which the user sees how it went on.
 */
export async function poll<T>(
  terminal: Terminal,
  lookAgain: string,
  ask: () => Promise<T | undefined>,
): Promise<T> {
  const startedAt = terminal.now();
  let lastHeardAt = startedAt;
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(pauseMs * 1.5, longestPauseMs)) {
    try {
      const answer = await ask();
      if (answer !== undefined) return answer;
      lastHeardAt = terminal.now();
    } catch (error) {
      const mayComeBack = terminal.now() - lastHeardAt < silenceLimitMs;
      if (!isOutage(error) || !mayComeBack) throw error;
    }
    if (terminal.now() - startedAt > timeLimitMs) {
      throw new CliError(
        `This takes longer than 10 minutes; it goes on. Look again with: ${lookAgain}`,
      );
    }
    await terminal.sleep(pauseMs);
  }
}

const isOutage = (error: unknown): boolean =>
  error instanceof UnreachableError || (error instanceof ApiError && error.status === 503);
