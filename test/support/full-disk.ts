import { closeSync, openSync, writeSync } from 'node:fs';

/** Writes this file until nothing fits any more. */
export function fillDisk(path: string): void {
  const file = openSync(path, 'a');
  for (const size of [65_536, 4096, 512]) {
    try {
      for (;;) writeSync(file, Buffer.alloc(size));
    } catch {
      // Full for this size.
    }
  }
  closeSync(file);
}
