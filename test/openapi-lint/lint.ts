/**
 * `node lint.ts FILE`: Redocly's and Spectral's recommended rules over an OpenAPI document. Prints one JSON array of
 * problems. The linters are in a package of their own, which the compiler's run must not need: hence the types here.
 */

import { readFileSync } from 'node:fs';

export interface Problem {
  readonly linter: 'redocly' | 'spectral';
  readonly rule: string;
  readonly where: string;
  readonly message: string;
}

interface RedoclyCore {
  createConfig(config: object): Promise<unknown>;
  lintFromString(options: { source: string; absoluteRef: string; config: unknown }): Promise<
    readonly {
      readonly ruleId: string;
      readonly message: string;
      readonly location: readonly { readonly pointer?: string }[];
    }[]
  >;
}

interface SpectralRunner {
  setRuleset(ruleset: object): void;
  run(document: unknown): Promise<
    readonly {
      readonly code: string | number;
      readonly message: string;
      readonly path: readonly (string | number)[];
    }[]
  >;
}

interface SpectralCore {
  readonly Spectral: new () => SpectralRunner;
  readonly Document: new (source: string, parser: unknown, file: string) => unknown;
}

/** A module of this folder's package; old ones keep everything under `default`. */
async function load<T extends object>(name: string): Promise<T> {
  const loaded = (await import(name)) as { default?: T };
  return { ...loaded.default, ...loaded } as T;
}

async function lintWithRedocly(source: string, file: string): Promise<Problem[]> {
  const core = await load<RedoclyCore>('@redocly/openapi-core');
  const config = await core.createConfig({ extends: ['recommended'] });
  const found = await core.lintFromString({ source, absoluteRef: file, config });
  return found.map(({ ruleId, message, location }) => ({
    linter: 'redocly',
    rule: ruleId,
    where: location[0]?.pointer ?? '',
    message,
  }));
}

async function lintWithSpectral(source: string, file: string): Promise<Problem[]> {
  const core = await load<SpectralCore>('@stoplight/spectral-core');
  const { Json } = await load<{ Json: unknown }>('@stoplight/spectral-parsers');
  const { oas } = await load<{ oas: object }>('@stoplight/spectral-rulesets');
  const runner = new core.Spectral();
  runner.setRuleset({ extends: [[oas, 'recommended']] });
  const found = await runner.run(new core.Document(source, Json, file));
  return found.map(({ code, message, path }) => ({
    linter: 'spectral',
    rule: String(code),
    where: `#/${path.join('/')}`,
    message,
  }));
}

const [file = ''] = process.argv.slice(2);
const source = readFileSync(file, 'utf8');
const problems = [
  ...(await lintWithRedocly(source, file)),
  ...(await lintWithSpectral(source, file)),
];
process.stdout.write(`${JSON.stringify(problems, null, 2)}\n`);
