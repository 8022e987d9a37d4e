import { getSystemErrorMessage } from 'node:util';
import { dataFolder } from './config-file.ts';
import { CliError, exitCodes } from './exit-codes.ts';
import type { Terminal } from './terminal.ts';

/**
 * What the service threw while it started, in words for its operator. Errors are known by name and code:
 * the CLI does not import the classes of the server. What is left is a defect, and stays as it is.
 */
export function explainStart(error: unknown, env: Terminal['env']): unknown {
  if (!(error instanceof Error)) return error;
  if (error.name === 'ConfigError') return new CliError(error.message, exitCodes.usage);
  if (error.name === 'EngineError') return new CliError(error.message);
  if (isSystemError(error)) return new CliError(systemProblem(error, dataFolder(env)));
  if ('code' in error && error.code === 'ERR_SQLITE_ERROR') {
    const advice = isFull(error)
      ? 'Make room on its disk and start again.'
      : 'Choose another data folder with --data, or mend this one.';
    return new CliError(
      `The database in ${dataFolder(env)} cannot be used: ${error.message}. ${advice}`,
    );
  }
  // A plain `Error` is thrown on purpose; defects have classes of their own, such as `TypeError`.
  return error.constructor === Error ? new CliError(error.message) : error;
}

/** SQLite's word for a full disk, and the one for its index of the write-ahead log. */
const isFull = (error: Error): boolean =>
  'errcode' in error && (error.errcode === 13 || error.errcode === 4874);

interface SystemError extends Error {
  readonly errno: number;
  readonly path?: string;
}

const isSystemError = (error: Error): error is SystemError =>
  'errno' in error && typeof error.errno === 'number' && error.errno < 0;

function systemProblem({ errno, path }: SystemError, folder: string): string {
  const reason = getSystemErrorMessage(errno);
  if (path === undefined || folder.startsWith(path)) {
    return `The data folder ${folder} cannot be written (${reason}). Choose another with --data.`;
  }
  return `${path} cannot be used (${reason}). The data folder is ${folder}; choose another with --data.`;
}
