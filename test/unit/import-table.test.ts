import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { test } from 'node:test';

/** What `berth serve` and `berth admin` run, each loaded by its command alone. */
const programs = [
  'main.ts',
  'admin.ts',
  'admin-engine.ts',
  'admin-images.ts',
  'catalog-loading.ts',
];

/** Which folder may import which: docs/decisions/0001-layers.md says why. */
const table: Readonly<Record<string, readonly string[]>> = {
  domain: [],
  api: ['domain'],
  engines: ['domain'],
  store: ['domain'],
  services: ['domain', 'store', 'engines/engine.ts'],
  http: ['api', 'domain', 'services'],
  cli: ['api', 'domain', ...programs, '../package.json'],
};

/** Libraries that stand for a layer: only that layer may know them. */
const owners: Readonly<Record<string, readonly string[]>> = {
  fastify: ['http'],
  kysely: ['store'],
  'node:sqlite': ['store'],
  typebox: ['api', 'http'],
  commander: ['cli'],
};

const source = resolve(import.meta.dirname, '../../src');

function filesBelow(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name));
}

function importsOf(file: string): string[] {
  const found = readFileSync(file, 'utf8').matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g);
  return [...found].map((match) => match[1] ?? '');
}

for (const [folder, allowed] of Object.entries(table)) {
  test(`src/${folder} imports only what the table allows`, () => {
    for (const file of filesBelow(join(source, folder))) {
      for (const name of importsOf(file)) checkImport(folder, allowed, file, name);
    }
  });
}

function checkImport(folder: string, allowed: readonly string[], file: string, name: string): void {
  const where = `${relative(source, file)} imports ${name}`;
  if (!name.startsWith('.')) {
    const owner = Object.entries(owners).find(
      ([library]) => name === library || name.startsWith(`${library}/`),
    );
    const path = relative(source, file);
    assert.ok(!owner || owner[1].some((prefix) => path.startsWith(prefix)), where);
    return;
  }
  const target = relative(source, resolve(file, '..', name));
  const inside = target.startsWith(`${folder}/`);
  assert.ok(
    inside || allowed.some((prefix) => target === prefix || target.startsWith(`${prefix}/`)),
    where,
  );
}

test('the registry alone imports engines', () => {
  for (const file of filesBelow(join(source, 'engines'))) {
    const path = relative(source, file);
    for (const name of importsOf(file).filter((imported) => imported.startsWith('.'))) {
      const target = relative(source, resolve(file, '..', name));
      const own = path.split('/').slice(0, 2).join('/');
      const shared =
        target === 'engines/engine.ts' ||
        target === 'engines/guest-conflicts.ts' ||
        target.startsWith('domain/') ||
        target.startsWith(`${own}/`);
      assert.ok(shared || path === 'engines/registry.ts', `${path} imports ${name}`);
    }
  }
});

test('every file is short enough to read', () => {
  for (const file of filesBelow(source)) {
    const lines = readFileSync(file, 'utf8').split('\n').length;
    assert.ok(lines <= 301, `${relative(source, file)} has ${lines} lines`);
  }
});
