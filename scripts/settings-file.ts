import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** A file that the machine reads at each boot. False: it is there already, or this machine has no such folder. */
export function writeSettings(file: string, text: string): boolean {
  if (existsSync(file) && readFileSync(file, 'utf8') === text) return false;
  if (!existsSync(dirname(file))) return false;
  writeFileSync(file, text);
  return true;
}
