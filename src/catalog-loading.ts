import { readFileSync, statSync } from 'node:fs';
import { getSystemErrorMessage } from 'node:util';
import { type Config, ConfigError, type Environment, loadConfig } from './config.ts';
import { type Catalog, defaultCatalog } from './domain/catalog.ts';
import {
  type CatalogReading,
  formatProblem,
  maxCatalogCharacters,
  readCatalog,
} from './domain/catalog-file.ts';

/** The operator's catalog, or the built-in one when no file is named. Throws `ConfigError` with all that is wrong. */
export function loadCatalog(path: string | undefined): Catalog {
  if (path === undefined) return defaultCatalog;
  const reading = readCatalogFile(path);
  if (reading.kind === 'catalog') return reading.catalog;
  throw new ConfigError(reading.problems.map((problem) => formatProblem(path, problem)));
}

/** The settings; when some are bad, `ConfigError` lists what is wrong with the catalog they name as well. */
export function loadSettings(env: Environment): Config {
  try {
    return loadConfig(env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError([...error.problems, ...catalogProblems(env.BERTH_CATALOG)]);
  }
}

function catalogProblems(path: string | undefined): readonly string[] {
  try {
    loadCatalog(path || undefined);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

/** Throws `ConfigError` when there is no such file to read. */
export function readCatalogFile(path: string): CatalogReading {
  const refuse = (why: string) =>
    new ConfigError([`The catalog "${path}" cannot be read: ${why}.`]);
  try {
    const file = statSync(path);
    // A pipe would be waited for, for ever.
    if (!file.isFile()) throw refuse('it is not a file');
    // No character takes more than three bytes of UTF-8 for each of its code units.
    if (file.size > 3 * maxCatalogCharacters)
      throw refuse(`it is larger than ${3 * maxCatalogCharacters} bytes`);
    return readCatalog(readFileSync(path, 'utf8'));
  } catch (error) {
    const errno = error instanceof Error && 'errno' in error ? error.errno : undefined;
    throw typeof errno === 'number' ? refuse(getSystemErrorMessage(errno)) : error;
  }
}
