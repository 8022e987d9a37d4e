import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Catalog } from '../../src/domain/catalog.ts';
import { readCatalog } from '../../src/domain/catalog-file.ts';

export const exampleFile = fileURLToPath(
  new URL('../../docs/catalog.example.yaml', import.meta.url),
);
export const exampleText = readFileSync(exampleFile, 'utf8');

/** A text that has to be a good catalog. */
export function catalogOf(text: string): Catalog {
  const reading = readCatalog(text);
  assert.equal(reading.kind, 'catalog', JSON.stringify(reading));
  return reading.catalog;
}

/** The example with one type that this host cannot attach and one template that it cannot start. */
export const beyondThisHost = (): string =>
  exampleText
    .replace(/(name: a100[\s\S]*?attach:) none/, '$1 passthrough')
    .replace(/(key: notebook[\s\S]*?source:) base/, '$1 notebook-image');
