/** What the catalog says is what clients read, and what creations are held to. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { defaultCatalog } from '../../src/domain/catalog.ts';
import { CatalogService } from '../../src/services/catalog.ts';
import { instanceOperations } from '../../src/services/instance-operations.ts';
import { smallest } from '../services/workshop.ts';
import { beyondThisHost, catalogOf, exampleText } from '../support/catalogs.ts';
import { serve } from './served.ts';

const plain = await serve({ from: 28_500, to: 28_519 });
after(() => plain.close());
const example = await serve({ from: 28_520, to: 28_539 }, undefined, catalogOf(exampleText));
after(() => example.close());
const beyond = await serve({ from: 28_540, to: 28_559 }, undefined, catalogOf(beyondThisHost()));
after(() => beyond.close());

const catalogsOf = (shop: typeof plain.shop, catalog: typeof defaultCatalog) =>
  new CatalogService(shop.context, catalog, shop.placing);

async function read(url: string, path: string): Promise<unknown> {
  const answer = await fetch(url + path);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8');
  return answer.json();
}

test('the built-in catalog, whole', async () => {
  const spec = (mode: string) => ({
    displayName: 'CPU only',
    vramGB: 0,
    gpuCount: 1,
    mode,
    vcpuOptions: Array.from({ length: 64 }, (_none, index) => index + 1),
    ramPerVCPUGiB: 4,
    storageGB: { min: 1, max: 2048 },
    ephemeralStorageGB: { min: 0, max: 2048 },
  });
  assert.deepEqual(await read(plain.url, '/v1/specs'), {
    specs: {
      cpu_x1_prototyping: spec('prototyping'),
      cpu_x1_production: spec('production'),
    },
  });
  assert.deepEqual(await read(plain.url, '/v1/status'), {
    gpu_type: { cpu: { prototyping: 'available', production: 'available' } },
    specs: { cpu_x1_prototyping: 'available', cpu_x1_production: 'available' },
  });
  const free = { additional_vcpus: 0, disk_gb: 0, ephemeral_disk_gb: 0 };
  assert.deepEqual(await read(plain.url, '/v1/pricing'), {
    pricing: { cpu_x1_prototyping: 0, cpu_x1_production: 0, ...free },
  });
});

test("an operator's catalog: specs, prices and templates field by field", async () => {
  const { specs } = (await read(example.url, '/v1/specs')) as { specs: Record<string, unknown> };
  assert.equal(Object.keys(specs).length, 5);
  assert.deepEqual(specs.a100_x4_production, {
    displayName: 'NVIDIA A100',
    vramGB: 80,
    gpuCount: 4,
    mode: 'production',
    vcpuOptions: [16, 32, 64],
    ramPerVCPUGiB: 8,
    storageGB: { min: 100, max: 2048 },
    ephemeralStorageGB: { min: 0, max: 4096 },
  });
  assert.deepEqual(await read(example.url, '/v1/pricing'), {
    pricing: {
      cpu_x1_prototyping: 0.05,
      cpu_x1_production: 0.12,
      a100_x1_production: 1.79,
      a100_x2_production: 3.58,
      a100_x4_production: 7.16,
      additional_vcpus: 0.02,
      disk_gb: 0.0001,
      ephemeral_disk_gb: 0.00005,
    },
  });
  const templates = (await read(example.url, '/v1/thunder-templates')) as Record<string, unknown>;
  assert.deepEqual(Object.keys(templates), ['base', 'notebook']);
  assert.deepEqual(templates.notebook, {
    displayName: 'Notebook',
    extendedDescription: 'A Jupyter notebook on port 8888, for data work in a browser.',
    automountFolders: [],
    cleanupCommands: ['jupyter lab stop 8888'],
    openPorts: [8888],
    startupCommands: ['jupyter lab --ip=0.0.0.0 --port=8888'],
    startupMinutes: 2,
    version: 1,
    default: false,
    defaultSpecs: { cores: 4, gpu_type: 'cpu', num_gpus: 1, storage: 50, template: 'notebook' },
  });
});

interface Status {
  readonly gpu_type: Record<string, Record<string, string>>;
  readonly specs: Record<string, string>;
}

test('what the engine cannot attach is unavailable, and the operator is told', async () => {
  const status = (await read(beyond.url, '/v1/status')) as Status;
  assert.deepEqual(status.gpu_type, {
    cpu: { prototyping: 'available', production: 'available' },
    a100: { production: 'unavailable' },
  });
  assert.equal(status.specs.a100_x1_production, 'unavailable');
  assert.equal(status.specs.cpu_x1_production, 'available');
  const notices = catalogsOf(beyond.shop, beyond.shop.catalog).notices();
  assert.match(notices.join('\n'), /"notebook".*"notebook-image"[\s\S]*"a100".*"passthrough"/);
  assert.deepEqual(catalogsOf(example.shop, example.shop.catalog).notices(), []);
});

test('an engine that does not answer places nothing', async () => {
  beyond.shop.faults.inject('health', 1);
  const status = (await read(beyond.url, '/v1/status')) as Status;
  assert.deepEqual([...new Set(Object.values(status.specs))], ['unavailable']);
  beyond.shop.faults.clear();
  const later = (await read(beyond.url, '/v1/status')) as Status;
  assert.equal(later.specs.cpu_x1_production, 'available');
});

test('a catalog without a template that the engine can start places nothing', async () => {
  const text = exampleText.replaceAll('source: base', 'source: elsewhere');
  const { canPlace } = await catalogsOf(plain.shop, catalogOf(text)).availability();
  assert.deepEqual(new Set(catalogOf(text).specs.map(canPlace)), new Set([false]));
});

const good = {
  cpu_cores: 16,
  disk_size_gb: 100,
  gpu_type: 'A100',
  num_gpus: 1,
  mode: 'production',
  template: 'Notebook',
};

async function create(
  served: typeof example,
  change: Record<string, unknown>,
): Promise<{ status: number; message: string }> {
  const answer = await fetch(`${served.url}/v1/instances/create`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${await served.newToken()}`,
    },
    body: JSON.stringify({ ...good, ...change }),
  });
  const body = (await answer.json()) as { message?: string };
  return { status: answer.status, message: body.message ?? '' };
}

const refused: readonly (readonly [Record<string, unknown>, RegExp])[] = [
  [{ gpu_type: 'h100' }, /"gpu_type" is "h100".*cpu, a100/],
  [{ num_gpus: 3 }, /"num_gpus" is 3.*one of: 1, 2, 4/],
  [{ mode: 'prototyping' }, /"mode" is "prototyping".*one of: production/],
  [{ cpu_cores: 17 }, /"cpu_cores" is 17.*one of: 16, 32, 64/],
  [{ disk_size_gb: 99 }, /"disk_size_gb" is 99.*from 100 to 2048/],
  [{ ephemeral_disk_gb: 4097 }, /"ephemeral_disk_gb" is 4097.*from 0 to 4096/],
  [{ template: 'windows' }, /"template" is "windows".*base, notebook.*READY snapshot/],
];
for (const [change, message] of refused) {
  test(`create with ${JSON.stringify(change)} is a 400 that says what is allowed`, async () => {
    const answer = await create(example, change);
    assert.equal(answer.status, 400, answer.message);
    assert.match(answer.message, message);
    assert.deepEqual(await example.shop.instances.list(example.shop.actor), []);
  });
}

test('create with what the engine cannot attach or start is a 400, and no row', async () => {
  const gpu = await create(beyond, { template: 'base' });
  assert.equal(gpu.status, 400);
  assert.match(gpu.message, /"gpu_type" is "A100".*cannot attach.*has: cpu\./);
  const size = { gpu_type: 'cpu', template: 'notebook' };
  const template = await create(beyond, size);
  assert.equal(template.status, 400);
  assert.match(template.message, /"template" is "notebook".*cannot start.*has: base\./);
  assert.deepEqual(await beyond.shop.instances.list(beyond.shop.actor), []);
});

test('a template is started from its source, and the GPU type is echoed as written', async () => {
  const { shop } = example;
  assert.equal((await create(example, {})).status, 201);
  await shop.settle();
  const [view] = await shop.instances.list(shop.actor);
  assert.equal(view?.row.status, 'RUNNING', view?.row.failure ?? '');
  assert.deepEqual([view.row.template, view.row.gpu_type], ['notebook', 'A100']);
  assert.equal(view.row.memory_gb, 16 * 8);
});

test('a template that left the catalog before its instance was made fails the creation, with the reason', async () => {
  const { shop } = example;
  const wanted = { ...smallest, template: 'notebook' };
  const { uuid } = await shop.instances.create(shop.actor, wanted);
  const kinds = instanceOperations(shop.context, { from: 28_520, to: 28_539 }, defaultCatalog);
  const worker = shop.newWorker('after a restart', kinds);
  for (let round = 0; round < 20; round++) {
    await worker.runOnce();
    shop.clock.nowMs += 31_000;
  }
  const { row } = await shop.instances.get(shop.actor, uuid);
  assert.equal(row.status, 'UNKNOWN');
  assert.match(row.failure ?? '', /no template "notebook" any more/);
});

test('create and modify where no host has room are 409 no_capacity, and the status says so', async () => {
  const { shop, url, newToken } = plain;
  const host = { name: 'm1', online: true, cpuCores: 8, memoryGb: 8, diskGb: 100, gpus: [] };
  shop.faults.capabilities = { hosts: [host] };
  const { uuid } = await shop.instances.create(shop.actor, smallest);
  await shop.settle();
  const authorization = `Bearer ${await newToken()}`;
  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json', authorization };
    const answer = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    const refusal = (await answer.json()) as { code: number; error: string; message: string };
    return { status: answer.status, ...refusal };
  };
  const text = /^There is no room for this .* GB of memory \(4 free\)\. Ask for less/;
  const wanted = { ...good, gpu_type: 'cpu', cpu_cores: 2, template: 'base', disk_size_gb: 10 };
  for (const [path, body] of [
    ['/v1/instances/create', wanted],
    [`/v1/instances/${uuid}/modify`, { cpu_cores: 3 }],
  ] as const) {
    const { status, code, error, message } = await post(path, body);
    assert.deepEqual([status, code, error], [409, 409, 'no_capacity'], path);
    assert.match(message, text);
  }
  shop.faults.capabilities = { hosts: [{ ...host, memoryGb: 7 }] };
  const { specs } = (await read(url, '/v1/status')) as Status;
  assert.deepEqual(new Set(Object.values(specs)), new Set(['unavailable']));
  shop.faults.clear();
});
