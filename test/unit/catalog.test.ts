import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  checkPlacement,
  defaultCatalog,
  findTemplate,
  type WantedPlacement,
} from '../../src/domain/catalog.ts';
import { AppError } from '../../src/domain/errors.ts';
import { beyondThisHost, catalogOf, exampleText } from '../support/catalogs.ts';

const example = catalogOf(exampleText);
const nothingToAttach = { attaches: [] };
const good: WantedPlacement = {
  gpuType: 'a100',
  numGpus: 2,
  mode: 'production',
  cpuCores: 32,
  diskSizeGb: 100,
  ephemeralDiskGb: 0,
};

function refusalOf(
  change: Partial<WantedPlacement>,
  catalog = example,
  abilities: { attaches: readonly string[] } = nothingToAttach,
): string {
  try {
    checkPlacement(catalog, abilities, { ...good, ...change });
  } catch (error) {
    assert.ok(error instanceof AppError);
    assert.equal(error.kind, 'invalid_request');
    return error.message;
  }
  return 'accepted';
}

test('a placement that the catalog offers has its spec and its memory', () => {
  for (const gpuType of ['a100', 'A100']) {
    const { spec, memoryGb } = checkPlacement(example, nothingToAttach, { ...good, gpuType });
    assert.equal(spec.key, 'a100_x2_production');
    assert.equal(memoryGb, 32 * 8);
  }
});

const refusals: readonly (readonly [Partial<WantedPlacement>, string])[] = [
  [{ gpuType: 'h100' }, 'The field "gpu_type" is "h100", but this service has: cpu, a100.'],
  [{ gpuType: '' }, 'The field "gpu_type" is "", but this service has: cpu, a100.'],
  [{ numGpus: 0 }, 'The field "num_gpus" is 0, but for "a100" it must be one of: 1, 2, 4.'],
  [{ numGpus: 3 }, 'The field "num_gpus" is 3, but for "a100" it must be one of: 1, 2, 4.'],
  [
    { mode: 'prototyping' },
    'The field "mode" is "prototyping", but for 2 of "a100" it must be one of: production.',
  ],
  [
    { cpuCores: 33 },
    'The field "cpu_cores" is 33, but for a100_x2_production it must be one of: 16, 32, 64.',
  ],
  [
    { gpuType: 'cpu', numGpus: 1, mode: 'prototyping', cpuCores: 17 },
    'The field "cpu_cores" is 17, but for cpu_x1_prototyping it must be from 1 to 16.',
  ],
  [
    { diskSizeGb: 99 },
    'The field "disk_size_gb" is 99, but for a100_x2_production it must be from 100 to 2048.',
  ],
  [
    { diskSizeGb: 2049 },
    'The field "disk_size_gb" is 2049, but for a100_x2_production it must be from 100 to 2048.',
  ],
  [
    { ephemeralDiskGb: 4097 },
    'The field "ephemeral_disk_gb" is 4097, but for a100_x2_production it must be from 0 to 4096.',
  ],
];
for (const [change, message] of refusals) {
  test(`refused: ${JSON.stringify(change)}`, () => assert.equal(refusalOf(change), message));
}

test('the ends of every range are in it', () => {
  for (const change of [{ diskSizeGb: 100 }, { diskSizeGb: 2048 }, { ephemeralDiskGb: 4096 }])
    assert.equal(refusalOf(change), 'accepted');
});

test('what the engine cannot attach is refused, and what it can is not', () => {
  const catalog = catalogOf(beyondThisHost());
  assert.equal(
    refusalOf({}, catalog),
    'The field "gpu_type" is "a100", but this host cannot attach that; it has: cpu.',
  );
  assert.equal(refusalOf({}, catalog, { attaches: ['passthrough'] }), 'accepted');
});

test('the built-in catalog is for a host without GPUs', () => {
  const keys = defaultCatalog.specs.map((spec) => spec.key).sort();
  assert.deepEqual(keys, ['cpu_x1_production', 'cpu_x1_prototyping']);
  const { cores, storageGb, ...type } = defaultCatalog.templates[0]?.defaultSpecs ?? {};
  assert.deepEqual(type, { gpuType: 'cpu', numGpus: 1 });
  assert.equal(findTemplate(defaultCatalog, 'BASE')?.key, 'base');
  assert.equal(findTemplate(example, 'notebook')?.source, 'base');
});
