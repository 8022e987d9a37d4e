import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { AppError } from './domain/errors.ts';

/**
 * Others may pass through the folder (the sandbox user reaches its disks), but not look into it. A folder that was
 * there before keeps its mode: it may hold more than ours.
 */
export function makeDataFolder(path: string): void {
  try {
    if (existsSync(path)) accessSync(path, constants.W_OK | constants.X_OK);
    else makeFolder(path);
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code;
    throw new AppError(
      'conflict',
      `The data folder ${path} cannot be used (${reason}). Choose another with --data.`,
    );
  }
}

/** Step by step: a recursive mkdir never ends where nothing can be made, as in /proc. */
function makeFolder(path: string): void {
  if (!existsSync(dirname(path))) makeFolder(dirname(path));
  try {
    mkdirSync(path, { mode: 0o711 });
  } catch (error) {
    // Somebody else has made it at the same moment.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

const plannedStopName = 'stopped-as-planned';

/** For the next start: whatever should run and does not was ended by the service itself. */
export function notePlannedStop(path: string): void {
  writeFileSync(join(path, plannedStopName), '', { mode: 0o600 });
}

/** Was there such a note? It counts once. */
export function takePlannedStop(path: string): boolean {
  const note = join(path, plannedStopName);
  const found = existsSync(note);
  rmSync(note, { force: true });
  return found;
}

const engineName = 'engine';

/** Of which engine the instances are that its database knows; undefined where nobody has noted it. */
export function engineOfData(path: string): string | undefined {
  const note = join(path, engineName);
  return (existsSync(note) && readFileSync(note, 'utf8').trim()) || undefined;
}

/** @throws AppError `conflict` when the folder is another engine's: this one would find none of its instances. */
export function requireEngine(path: string, engine: string): void {
  const noted = engineOfData(path) ?? engine;
  if (noted === engine) return;
  throw new AppError(
    'conflict',
    `The data folder ${path} is of the engine ${noted}, not ${engine}. Start it with --engine ${noted} (or BERTH_ENGINE=${noted}), or choose another folder with --data or BERTH_DATA.`,
  );
}

/** A full disk is no reason not to start: then the next start notes it. */
export function noteEngine(path: string, engine: string): void {
  if (engineOfData(path) === engine) return;
  try {
    writeFileSync(join(path, engineName), `${engine}\n`, { mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
}
