/** Which test files there are, and which of them run on which engine. */
import { globSync, statSync } from 'node:fs';
import { relative } from 'node:path';

export type EngineName = 'sandbox' | 'incus';

export interface Pass {
  readonly engine: EngineName;
  readonly files: readonly string[];
}

export interface Wishes {
  /** Files, folders or patterns; none: everything. */
  readonly paths: readonly string[];
  readonly quick: boolean;
  /** Only the pass of this engine. */
  readonly engine: EngineName | undefined;
}

/** Run on Incus alone. */
const onIncus = /^test\/(?:engine\/incus|cluster\/|crash\/incus)[^/]*\.test\.ts$/;
/** Run on both: what they are about is the same on each engine. */
const onBoth = /^test\/(?:e2e|crash)\/[^/]*\.test\.ts$/;

/** What `--quick` leaves out: what takes long and seldom tells more than the rest. */
const slow: readonly (readonly [file: string, what: string])[] = [
  ['test/crash/random-kills.test.ts', 'random kills'],
  ['test/fuzz/', 'fuzzing'],
  ['test/http/openapi-file.test.ts', 'the lint of openapi.json'],
];
export const leftOutByQuick = ['everything on Incus', ...slow.map(([, what]) => what)].join(', ');

export function planPasses({ paths, quick, engine }: Wishes): Pass[] {
  const all = filesOf(paths.length > 0 ? paths : ['test']);
  const isWanted = (file: string) => !quick || !slow.some(([start]) => file.startsWith(start));
  const passes: readonly Pass[] = [
    { engine: 'sandbox', files: all.filter((file) => !onIncus.test(file) && isWanted(file)) },
    { engine: 'incus', files: all.filter((file) => onIncus.test(file) || onBoth.test(file)) },
  ];
  const only = quick ? 'sandbox' : engine;
  return passes.filter(
    (pass) => pass.files.length > 0 && (only === undefined || pass.engine === only),
  );
}

const exclude = (path: string) => path.includes('node_modules');

const patternOf = (path: string): string =>
  statSync(path, { throwIfNoEntry: false })?.isDirectory()
    ? `${path.replace(/\/$/, '')}/**/*.test.ts`
    : path;

/** Those of which there is no test. */
export const missingAmong = (paths: readonly string[]): string[] =>
  paths.filter((path) => globSync(patternOf(path), { exclude }).length === 0);

function filesOf(paths: readonly string[]): string[] {
  const found = globSync(paths.map(patternOf), { exclude });
  return found.map((file) => relative('', file)).sort();
}
