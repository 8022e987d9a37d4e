import { accessSync, constants, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
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
  mkdirSync(path, { mode: 0o711 });
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
