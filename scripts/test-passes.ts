/** Which test files there are, and which of them run on which engine. */
import { globSync, statSync } from 'node:fs';
import { relative } from 'node:path';

export type EngineName = 'sandbox' | 'incus';

export interface Pass {
  readonly engine: EngineName;
  readonly files: readonly string[];
  /** How many of them run at the same moment. */
  readonly width: number;
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
/** Run on both: what they are about is the same on each engine, or they ask for an Incus where there is one. */
const onBoth = /^test\/(?:(?:e2e|crash)\/[^/]*|cli\/admin-image)\.test\.ts$/;

/** What `--quick` leaves out: what takes long, or waits for long, and seldom tells more than the rest. */
const slow: readonly (readonly [files: RegExp, what: string])[] = [
  [/^test\/crash\//, 'kills at every crash point and at random'],
  [/^test\/fuzz\//, 'fuzzing'],
  [/^test\/engine\/sandbox-(?:disk-quotas|escape|hostile-disk|networks)\./, "the sandbox's walls"],
  [/^test\/e2e\/(?:hostile-guest|response-cut)\./, 'hostile guests and cut answers'],
  [/^test\/(?:contract\/limits|http\/snapshot-wait)\./, 'windows of time'],
  [/^test\/services\/(?:host-loss|pending-keys)\./, 'lost hosts and late keys'],
  [/^test\/cli\/(?:admin|admin-audit|key-places|usage)\./, 'a part of the command line'],
  [/^test\/unit\/incus-silence\./, 'silent hosts'],
  [/^test\/http\/openapi-file\./, 'the lint of openapi.json'],
];
export const leftOutByQuick = ['everything on Incus', ...slow.map(([, what]) => what)].join(', ');

export function planPasses({ paths, quick, engine }: Wishes): Pass[] {
  const all = filesOf(paths.length > 0 ? paths : ['test']);
  const isWanted = (file: string) => !quick || !slow.some(([files]) => files.test(file));
  const passes: readonly Pass[] = [
    {
      engine: 'sandbox',
      files: all.filter((file) => !onIncus.test(file) && isWanted(file)),
      width: 3,
    },
    {
      engine: 'incus',
      files: all.filter((file) => onIncus.test(file) || onBoth.test(file)),
      // They wait more: for guests that boot, and for a cluster that notices.
      width: 4,
    },
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
