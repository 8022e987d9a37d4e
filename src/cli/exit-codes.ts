import { CommanderError } from 'commander';
import { ApiError, UnreachableError } from '../api/client.ts';
import { AppError } from '../domain/errors.ts';

/** What scripts may rely on; part of the CLI's contract. */
export const exitCodes = {
  ok: 0,
  failure: 1,
  usage: 2,
  auth: 3,
  notFound: 4,
  unreachable: 5,
} as const;
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** An expected failure: its message says what to do next and is all that the user sees. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: ExitCode;

  constructor(message: string, exitCode: ExitCode = exitCodes.failure) {
    super(message);
    this.exitCode = exitCode;
  }
}

export interface Failure {
  readonly exitCode: ExitCode;
  /** For stderr; undefined when the user has been told already. */
  readonly text?: string;
}

/** Turns whatever was thrown into an exit code and a text; only a defect of ours gets a stack trace. */
export function explainFailure(
  error: unknown,
  env: Readonly<Record<string, string | undefined>> = {},
): Failure {
  if (error instanceof CommanderError) {
    return { exitCode: error.exitCode === 0 ? exitCodes.ok : exitCodes.usage };
  }
  if (error instanceof CliError) return { exitCode: error.exitCode, text: error.message };
  if (error instanceof ApiError)
    return explainApiError(error, env.BERTH_TOKEN ? badVariable : logInAgain);
  if (error instanceof UnreachableError) return explainUnreachable(error);
  if (error instanceof AppError) return { exitCode: codeOfKind(error.kind), text: error.message };
  // Known by its name: the CLI imports nothing of the server but its entry, and that only when asked to serve.
  if (error instanceof Error && error.name === 'ConfigError') {
    return { exitCode: exitCodes.usage, text: error.message };
  }
  if (error instanceof Error && (error.name === 'EngineError' || isOfTheSystem(error))) {
    return { exitCode: exitCodes.failure, text: error.message };
  }
  const report = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return { exitCode: exitCodes.failure, text: `this is a defect; please report it.\n${report}` };
}

/** Such as EACCES: the machine refused something, and the message names what. */
const isOfTheSystem = (error: Error): boolean =>
  'errno' in error && typeof error.errno === 'number' && 'code' in error;

const logInAgain = 'Log in again with: berth login';
const badVariable =
  'The token is that of BERTH_TOKEN, which goes before the one that berth login saved. Correct it, or: unset BERTH_TOKEN';

function explainApiError(error: ApiError, whatNext: string): Failure {
  switch (error.status) {
    case 401:
      return {
        exitCode: exitCodes.auth,
        text: `${error.message}\n${whatNext}`,
      };
    case 403:
      return { exitCode: exitCodes.auth, text: error.message };
    case 404:
      return { exitCode: exitCodes.notFound, text: error.message };
    default:
      return { exitCode: exitCodes.failure, text: error.message };
  }
}

function explainUnreachable(error: UnreachableError): Failure {
  const lines = [
    error.message,
    'Start the service with `npm run quickstart` or `berth serve`, or name another with --url or BERTH_URL.',
  ];
  return { exitCode: exitCodes.unreachable, text: lines.join('\n') };
}

function codeOfKind(kind: AppError['kind']): ExitCode {
  if (kind === 'not_found') return exitCodes.notFound;
  return kind === 'unauthorized' || kind === 'forbidden' ? exitCodes.auth : exitCodes.failure;
}
