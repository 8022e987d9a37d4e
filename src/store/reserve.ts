import { existsSync, rmSync, writeFileSync } from 'node:fs';

const reserveBytes = 4 * 1024 * 1024;

export interface Reserve {
  /** Takes the space, where there is some and it is not taken yet. */
  keep(): void;
  /** Gives the space back to the file system; false when there was none left to give. */
  release(): boolean;
}

/**
 * Space kept for the database: when a guest has filled the disk, deletions must still find room for their rows, or
 * nothing could ever be deleted again, and the service could not even start. It is kept anew at the next start that
 * finds room for it.
 */
export function openReserve(path: string): Reserve {
  return {
    keep: () => {
      if (!existsSync(path)) keep(path);
    },
    release: () => {
      if (!existsSync(path)) return false;
      rmSync(path, { force: true });
      return true;
    },
  };
}

function keep(path: string): void {
  try {
    writeFileSync(path, Buffer.alloc(reserveBytes), { mode: 0o600 });
  } catch {
    rmSync(path, { force: true });
  }
}
