/** Any text is a catalog, or a list of everything that is wrong with it, line by line. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatProblem, maxCatalogCharacters, readCatalog } from '../../src/domain/catalog-file.ts';
import type { Problem } from '../../src/domain/yaml-places.ts';
import { catalogOf, exampleText } from '../support/catalogs.ts';

function problemsOf(text: string): readonly Problem[] {
  const reading = readCatalog(text);
  return reading.kind === 'problems' ? reading.problems : [];
}

/** The example with its first `from` replaced; the problem is to be on the line of `at`. */
function edited(from: string, to: string, at = to): { text: string; line: number } {
  assert.ok(exampleText.includes(from), from);
  const text = exampleText.replace(from, () => to);
  const line = text.slice(0, text.indexOf(at)).split('\n').length;
  return { text, line };
}

test('the example in docs is a catalog', () => {
  const { gpuTypes, specs, templates, prices } = catalogOf(exampleText);
  assert.deepEqual(
    gpuTypes.map(({ name, vramGb, counts, attach }) => [name, vramGb, counts, attach]),
    [
      ['cpu', 0, [1], 'none'],
      ['a100', 80, [1, 2, 4], 'none'],
    ],
  );
  assert.deepEqual(
    specs.map((spec) => [spec.key, spec.pricePerHour]),
    [
      ['cpu_x1_prototyping', 0.05],
      ['cpu_x1_production', 0.12],
      ['a100_x1_production', 1.79],
      ['a100_x2_production', 3.58],
      ['a100_x4_production', 7.16],
    ],
  );
  assert.equal(specs[0]?.vcpuOptions.length, 16);
  assert.deepEqual(specs[1]?.vcpuOptions, [2, 4, 8, 16, 32]);
  assert.deepEqual(specs[0]?.ephemeralStorageGb, { min: 0, max: 0 });
  assert.deepEqual(
    templates.map((template) => [template.key, template.isDefault, template.openPorts]),
    [
      ['base', true, []],
      ['notebook', false, [8888]],
    ],
  );
  assert.match(templates[1]?.extendedDescription ?? '', /^A Jupyter notebook .* in a browser\.$/);
  assert.deepEqual(prices, { additionalVcpus: 0.02, diskGb: 0.0001, ephemeralDiskGb: 0.00005 });
});

test('hosts and devices, where they are named', () => {
  const uuid = '4C1D1E44-1111-2222-3333-abcdefabcdef';
  const { gpuTypes, templates } = catalogOf(
    exampleText
      .replace('name: a100', 'name: a100\n    hosts: [m1, rack-2.example]')
      .replace(
        /(name: a100[\s\S]*?attach:) none/,
        `$1 mig\n    devices: [{ host: m1, pci: "0000:3B:00.0", mig_uuid: ${uuid} }]`,
      )
      .replace('key: notebook', 'key: notebook\n    hosts: [m1]'),
  );
  assert.deepEqual(gpuTypes[1]?.hosts, ['m1', 'rack-2.example']);
  const migUuid = `MIG-${uuid.toLowerCase()}`;
  assert.deepEqual(gpuTypes[1].devices, [{ host: 'm1', pci: '0000:3b:00.0', migUuid }]);
  assert.deepEqual([gpuTypes[0]?.hosts, gpuTypes[0]?.devices], [[], []]);
  assert.deepEqual([templates[0]?.hosts, templates[1]?.hosts], [[], ['m1']]);
});

const base = 'key: base';
const physical = 'attach: physical\n    devices: ';
/** What is replaced, by what, where the problem is, its path, and words of its message. */
const wrong: readonly (readonly [string, string, string, string, RegExp])[] = [
  ['vram_gb: 0', 'vram_gb: 0\n    hosts: []', 'hosts: []', 'gpu_types[0].hosts', /list is empty/],
  ['vram_gb: 0', 'vram_gb: 0\n    hosts: m1', 'hosts: m1', 'gpu_types[0].hosts', /"m1".* list of/],
  [
    'vram_gb: 0',
    'vram_gb: 0\n    hosts: [m1, m1]',
    'hosts: [m1',
    'gpu_types[0].hosts[1]',
    /"m1" is there twice/,
  ],
  [base, 'key: base\n    hosts: ["a b"]', '"a b"', 'templates[0].hosts[0]', /name of a host/],
  [
    'attach: none',
    'attach: none\n    devices: [{ pci: "0000:3b:00.0" }]',
    'devices:',
    'gpu_types[0].devices',
    /"attach: none" has no devices/,
  ],
  ['attach: none', `${physical}[]`, 'devices: []', 'gpu_types[0].devices', /list is empty/],
  [
    'attach: none',
    `${physical}[{ host: m1 }]`,
    '{ host: m1 }',
    'gpu_types[0].devices[0]',
    /"pci" is missing/,
  ],
  [
    'attach: none',
    `${physical}[{ pci: "3b:00.0" }]`,
    '{ pci: "3b',
    'gpu_types[0].devices[0].pci',
    /a PCI address such as/,
  ],
  [
    'attach: none',
    `${physical}[{ pci: "0000:3b:00.0" }, { pci: "0000:3B:00.0" }]`,
    '{ pci: "0000:3B',
    'gpu_types[0].devices[1]',
    /device is there twice/,
  ],
  [
    'attach: none',
    'attach: none\n    hosts: [m2]\n    devices: [{ host: m1, pci: "0000:3b:00.0" }]'.replace(
      'none',
      'physical',
    ),
    'devices:',
    'gpu_types[0].devices[0].host',
    /"m1" is not among the hosts/,
  ],
  [
    'attach: none',
    'attach: mig\n    devices: [{ pci: "0000:3b:00.0" }]',
    'devices:',
    'gpu_types[0].devices[0]',
    /"mig_uuid" is missing/,
  ],
  [
    'attach: none',
    `${physical}[{ pci: "0000:3b:00.0", mig_uuid: 4c1d1e44-1111-2222-3333-abcdefabcdef }]`,
    'devices:',
    'gpu_types[0].devices[0].mig_uuid',
    /Only a type with "attach: mig"/,
  ],
  [
    'attach: none',
    'attach: mig\n    devices: [{ pci: "0000:3b:00.0", mig_uuid: MIG-1 }]',
    'devices:',
    'gpu_types[0].devices[0].mig_uuid',
    /UUID of a MIG instance/,
  ],
  ['vram_gb: 0', 'vram_gb: many', 'vram_gb: many', 'gpu_types[0].vram_gb', /"many".* from 0 to/],
  ['vram_gb: 80', "vram_gb: '80'", "'80'", 'gpu_types[1].vram_gb', /"80".*whole number/],
  ['vram_gb: 80', 'vram_gb: 80.5', '80.5', 'gpu_types[1].vram_gb', /80\.5.*whole number/],
  ['vram_gb: 80', 'vram_gb: .inf', '.inf', 'gpu_types[1].vram_gb', /Infinity.*whole number/],
  ['vram_gb: 80', 'vram_gb:', 'vram_gb:\n    counts: [1, 2', 'gpu_types[1].vram_gb', /empty/],
  ['vram_gb: 80', 'vram: 80', 'vram: 80', 'gpu_types[1].vram', /not known.*vram_gb/],
  ['    vram_gb: 80\n', '', 'name: a100', 'gpu_types[1]', /"vram_gb" is missing/],
  ['name: a100', 'name: CPU', '- name: CPU', 'gpu_types[1].name', /"cpu" is there already/],
  ['name: a100', 'name: a 100', 'name: a 100', 'gpu_types[1].name', /letters, digits/],
  ['name: a100', 'name: __proto__', '__proto__', 'gpu_types[1].name', /letters, digits/],
  ['name: a100', 'name: [a100]', '[a100]', 'gpu_types[1].name', /This is a list/],
  ['[1, 2, 4]', '[1, 2, 2]', '[1, 2, 2]', 'gpu_types[1].counts[2]', /2 is there twice/],
  ['[1, 2, 4]', '[1, 2, 0]', '[1, 2, 0]', 'gpu_types[1].counts[2]', /This is 0.*from 1 to 64/],
  ['[1, 2, 4]', '[]', 'counts: []', 'gpu_types[1].counts', /empty; it must hold numbers of GPUs/],
  [', 4: 7.16', '', '{ 1: 1.79', 'gpu_types[1].modes.production.price_per_hour', /"4" is missing/],
  ['4: 7.16', '8: 7.16', '8: 7.16', 'gpu_types[1].modes.production.price_per_hour.8', /not known/],
  ['1: 0.12', '1: -1', '1: -1', 'gpu_types[0].modes.production.price_per_hour.1', /This is -1/],
  ['1: 0.12', '1: free', '1: free', 'gpu_types[0].modes.production.price_per_hour.1', /a number/],
  [
    'production:',
    'fast:',
    'fast:',
    'gpu_types[0].modes.fast',
    /known are: prototyping, production/,
  ],
  [
    '{ min: 1, max: 16 }',
    '{ min: 9, max: 8 }',
    'min: 9',
    'gpu_types[0].modes.prototyping.vcpus',
    /max is 8.*at least the min/,
  ],
  [
    '{ min: 1, max: 16 }',
    '{ min: 1, max: 99999999 }',
    '99999999',
    'gpu_types[0].modes.prototyping.vcpus.max',
    /from 1 to 1024/,
  ],
  [
    '{ min: 1, max: 16 }',
    '16',
    'vcpus: 16',
    'gpu_types[0].modes.prototyping.vcpus',
    /This is 16, but must be a list/,
  ],
  [
    '{ min: 10, max: 500 }',
    '{ max: 500 }',
    '{ max: 500 }',
    'gpu_types[0].modes.prototyping.storage_gb',
    /"min" is missing/,
  ],
  ['disk_gb: 0.0001', 'disk_gb: {}', 'disk_gb: {}', 'prices.disk_gb', /a map of fields/],
  [
    'disk_gb: 0.0001',
    'disc_gb: 0.0001',
    'disc_gb',
    'prices.disc_gb',
    /known are: additional_vcpus/,
  ],
  ['source: base', 'sauce: base', 'sauce', 'templates[0].sauce', /not known/],
  ['    source: base\n', '', base, 'templates[0]', /"source" is missing/],
  ['version: 1', 'version: one', 'version: one', 'templates[0].version', /whole number/],
  ['default: true', 'default: yes', 'default: yes', 'templates[0].default', /"yes".*true or false/],
  ['    default: true\n', '', 'templates:', 'templates', /No template is the default/],
  [
    'source: base\n    open',
    'source: base\n    default: true\n    open',
    'key: notebook',
    'templates[1]',
    /default already/,
  ],
  [
    'key: notebook',
    'key: Base',
    'key: Base',
    'templates[1]',
    /"base" has the key or display name "base"/,
  ],
  ['display_name: Notebook', 'display_name: base', 'key: notebook', 'templates[1]', /already/],
  ['[8888]', '[70000]', '[70000]', 'templates[1].open_ports[0]', /from 1 to 65535/],
  ['[jupyter lab --', '["", jupyter lab --', '["",', 'templates[1].startup_commands[0]', /""/],
  [
    'cores: 4',
    'cores: 17',
    'cores: 17',
    'templates[1].default_specs',
    /No mode of gpu_types offers these values/,
  ],
  [
    'gpu_type: cpu, num_gpus: 1, storage_gb: 50',
    'gpu_type: t4, num_gpus: 1, storage_gb: 50',
    't4',
    'templates[1].default_specs',
    /No mode of gpu_types/,
  ],
  [
    'gpu_types:',
    'gpus: 1\ngpu_types:',
    'gpus: 1',
    'gpus',
    /known are: gpu_types, prices, templates/,
  ],
  ['prices:', 'prices: 1\nprices:', 'prices:\n', '', /"prices" is there twice/],
  ['attach: none', 'attach: *x', '*x', 'gpu_types[0].attach', /the alias \*x/],
  ['attach: none', 'attach: &x none\n    attach: *x', '*x', 'gpu_types[0]', /there twice/],
  [
    'display_name: CPU only',
    'display_name: &x CPU\n    x: 1',
    'x: 1',
    'gpu_types[0].x',
    /not known/,
  ],
  [
    'display_name: NVIDIA A100',
    'display_name: !!binary aGk=',
    '!!binary',
    'gpu_types[1].display_name',
    /one line of text/,
  ],
  ['display_name: NVIDIA A100', 'display_name: !odd x', '!odd', '', /not YAML.*!odd/],
  [
    'display_name: NVIDIA A100',
    'display_name: "a\\u0007b"',
    '\\u0007',
    'gpu_types[1].display_name',
    /one line of text/,
  ],
];

for (const [from, to, at, path, message] of wrong) {
  test(`${JSON.stringify(from)} replaced by ${JSON.stringify(to)} is a problem of its line`, () => {
    const { text, line } = edited(from, to, at);
    const problems = problemsOf(text);
    const found = problems.find((one) => one.path === path && message.test(one.message));
    assert.equal(found?.line, line, JSON.stringify(problems));
    assert.ok(problems.length <= 2, JSON.stringify(problems));
  });
}

test('all problems are reported, by line', () => {
  const text = exampleText
    .replace('vram_gb: 0', 'vram_gb: x')
    .replace('attach: none', 'attach: 7')
    .replace('disk_gb: 0.0001', 'disk_gb: x')
    .replace('version: 1', 'version: 0')
    .replace('key: notebook', 'kee: notebook');
  const lines = problemsOf(text).map((problem) => problem.line);
  assert.deepEqual(
    lines,
    lines.toSorted((one, other) => one - other),
  );
  const paths = problemsOf(text).map((problem) => problem.path);
  assert.deepEqual(paths, [
    'gpu_types[0].vram_gb',
    'gpu_types[0].attach',
    'prices.disk_gb',
    'templates[0].version',
    'templates[1]',
    'templates[1].kee',
  ]);
});

test('a problem is shown with its file and its line', () => {
  const problem = { line: 3, path: 'prices', message: 'Wrong.' };
  assert.equal(formatProblem('a.yaml', problem), 'a.yaml:3: prices: Wrong.');
  assert.equal(formatProblem('a.yaml', { ...problem, path: '' }), 'a.yaml:3: Wrong.');
});

const bomb = [
  'a: &a [x, x, x, x, x, x, x, x, x]',
  ...Array.from({ length: 26 }, (_none, index) => {
    const name = String.fromCharCode(97 + index);
    const next = String.fromCharCode(98 + index);
    return `${next}: &${next} [${`*${name}, `.repeat(9)}]`;
  }),
].join('\n');
const size = maxCatalogCharacters - 10;
const many = (text: string) => text.repeat(Math.floor(size / text.length));
const numbered = (text: (index: number) => string, length: number) =>
  Array.from({ length: Math.floor(size / length) }, (_none, index) => text(index)).join('');

/** What is odd as a whole: none may throw, or take long, or be taken for a catalog. */
const odd: Readonly<Record<string, string>> = {
  nothing: '',
  'white space': ' \n\n',
  'a comment': '# nothing\n',
  null: '~',
  'a number': '1',
  'a list': '- 1',
  'no closing bracket': 'gpu_types: [',
  'a tab for indentation': 'gpu_types:\n\t- name: x',
  'two documents': `${exampleText}\n---\n${exampleText}`,
  'an alias bomb': bomb,
  'an anchor that holds itself': 'gpu_types: &x [*x]',
  'a merge': 'x: &x {a: 1}\n<<: *x',
  'a file that is too large': `${exampleText}\n#${'x'.repeat(maxCatalogCharacters)}`,
  'deep flow lists': '['.repeat(size),
  'deep flow maps': '{a: '.repeat(size / 4),
  'deep block lists': '- '.repeat(size / 2),
  'many fields': numbered((index) => `f${index}: 1\n`, 10),
  'many equal fields': many('a: 1\n'),
  'many types': `gpu_types:\n${numbered((index) => `- {name: t${index}}\n`, 18)}`,
  'many empty templates': `templates:\n${many('- {}\n')}`,
  'many question marks': many('? '),
  'many anchors': numbered((index) => `- &a${index}\n`, 12),
  'control characters': '\u0000\u0001\u001b[31m',
  'a byte order mark alone': '\ufeff',
};
for (const [name, text] of Object.entries(odd)) {
  test(`${name}: problems with lines, and soon`, () => {
    const startMs = performance.now();
    const problems = problemsOf(text);
    assert.ok(performance.now() - startMs < 20_000, 'it took too long');
    assert.ok(problems.length > 0);
    checkProblems(problems, text);
  });
}

test('what is nested too deeply is told so', () => {
  for (const text of ['['.repeat(size), '- '.repeat(size / 2)])
    assert.match(problemsOf(text)[0]?.message ?? '', /nested too deeply/);
});

function checkProblems(problems: readonly Problem[], text: string): void {
  const lines = text.split('\n').length;
  for (const { line, path, message } of problems) {
    const isFine = Number.isInteger(line) && line >= 1 && line <= lines;
    if (!isFine) assert.fail(`line ${line} of ${lines}: ${message}`);
    if (message.length < 10 || message.length > 1000) assert.fail(message);
    if (/[\u0000-\u001f]/.test(message + path)) assert.fail(JSON.stringify([path, message]));
  }
}

const pieces = fc.constantFrom(
  ...['gpu_types', 'name', 'modes', 'price_per_hour', 'templates', 'key', 'default', 'prices'],
  ...['- ', ': ', '\n', '\n  ', '\n    ', '[', ']', '{', '}', ', ', '&a ', '*a', '!!map ', '!x '],
  ...[
    '"',
    "'",
    '|\n',
    '>-\n',
    '# x\n',
    '---\n',
    '...\n',
    '%YAML 1.1\n',
    '? ',
    '<<',
    '~',
    '1',
    '.nan',
  ],
  ...['1e999', '0x10', '-0', 'true', '__proto__', '\t', '\ufeff', '\u2028', '\u{1f511}', '@', '`'],
);
const texts = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 200 }),
  fc.array(pieces, { maxLength: 60 }).map((parts) => parts.join('')),
  // The example with a part of it replaced.
  fc
    .tuple(fc.nat(exampleText.length), fc.nat(40), fc.array(pieces, { maxLength: 4 }))
    .map(
      ([at, cut, parts]) => exampleText.slice(0, at) + parts.join('') + exampleText.slice(at + cut),
    ),
);

test('any text is a catalog or a list of problems with lines', () => {
  fc.assert(
    fc.property(texts, (text) => {
      const reading = readCatalog(text);
      if (reading.kind === 'catalog') {
        assert.ok(reading.catalog.specs.length > 0 && reading.catalog.templates.length > 0);
        return;
      }
      assert.ok(reading.problems.length > 0);
      checkProblems(reading.problems, text);
    }),
    { numRuns: 3000 },
  );
});
