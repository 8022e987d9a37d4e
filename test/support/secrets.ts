/** Looks for secrets in files and in the process table. */

import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { allProcesses } from './processes.ts';

/** How a private key shows in any file: as PEM text, as the binary form, or as base64 of that form. */
const PRIVATE_KEY_MARKS = ['PRIVATE KEY-----', 'openssh-key-v1\0', 'b3BlbnNzaC1rZXktdjE'];

/** An instance has host keys of its own; they are the only private keys that may lie on the disk. */
const HOST_KEY = /\/ssh_host_[a-z0-9]+_key$/;

/** Every regular file below a folder, without following links. */
export function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return filesBelow(path);
    return entry.isFile() ? [path] : [];
  });
}

function read(path: string): Buffer {
  try {
    return lstatSync(path).size > 200_000_000 ? Buffer.alloc(0) : readFileSync(path);
  } catch {
    return Buffer.alloc(0);
  }
}

/** "file: needle" for every needle found in one of these files. */
export function findInFiles(files: readonly string[], needles: readonly string[]): string[] {
  const wanted = needles.map((needle) => Buffer.from(needle));
  return files.flatMap((path) => {
    const content = read(path);
    const hits = needles.filter((_, index) => content.includes(wanted[index] ?? ''));
    return hits.map((hit) => `${path}: ${hit.slice(0, 12)}...`);
  });
}

/** Files that hold something like a private key. */
export function privateKeysIn(files: readonly string[]): string[] {
  return findInFiles(
    files.filter((path) => !HOST_KEY.test(path)),
    PRIVATE_KEY_MARKS,
  );
}

/** Commands of living processes that show one of these needles. */
export function findInCommands(needles: readonly string[]): string[] {
  return allProcesses()
    .map((found) => found.command)
    .filter((command) => needles.some((needle) => command.includes(needle)));
}

/**
 * What gives an OpenSSH Ed25519 private key away in a file: the lines of its text that hold the seed, and the seed
 * itself as base64 and hex. The layout is in OpenSSH's PROTOCOL.key.
 */
export function tracesOf(privateKey: string): string[] {
  const lines = privateKey.split('\n').filter((line) => !line.startsWith('-----'));
  const blob = Buffer.from(lines.join(''), 'base64');
  const mark = Buffer.from('\0\0\0\x40', 'latin1');
  const at = blob.lastIndexOf(mark) + mark.length;
  const seed = blob.subarray(at, at + 32);
  const [, , third = '', fourth = ''] = lines;
  const texts = [third, fourth].filter((line) => line.length >= 40);
  return [...texts, seed.toString('base64').slice(0, 42), seed.toString('hex')];
}

/** The seed's bytes, as a latin1 string cannot be searched in UTF-8: use with `Buffer.includes`. */
export function seedOf(privateKey: string): Buffer {
  const hex = tracesOf(privateKey).at(-1) ?? '';
  return Buffer.from(hex, 'hex');
}

export function filesWithBytes(files: readonly string[], needles: readonly Buffer[]): string[] {
  return files.filter((path) => {
    const content = read(path);
    return needles.some((needle) => content.includes(needle));
  });
}
