/** The catalog that an operator writes, as YAML: docs/catalog.md and docs/catalog.example.yaml show its fields. */

import {
  type Catalog,
  type DefaultSpecs,
  type GpuType,
  type Mode,
  modes,
  numbersOf,
  type Prices,
  type Range,
  type Spec,
  specKey,
  type Template,
} from './catalog.ts';
import { readDevices, readHosts } from './catalog-devices.ts';
import { type Fields, type Place, type Problem, readYaml } from './yaml-places.ts';

export const maxCatalogCharacters = 131_072;

export type CatalogReading =
  | { readonly kind: 'catalog'; readonly catalog: Catalog }
  /** All that is wrong, by line; never empty. */
  | { readonly kind: 'problems'; readonly problems: readonly Problem[] };

/** Any text is a catalog or a list of problems; nothing is thrown. */
export function readCatalog(text: string): CatalogReading {
  const problems: Problem[] = [];
  const root = readYaml(text, maxCatalogCharacters, (problem) => problems.push(problem));
  const catalog = root && new CatalogReader(problems).read(root);
  if (catalog && problems.length === 0) return { kind: 'catalog', catalog };
  return { kind: 'problems', problems: problems.toSorted((one, other) => one.line - other.line) };
}

/** `catalog.yaml:12: gpu_types[0].name: ...` */
export function formatProblem(file: string, { line, path, message }: Problem): string {
  return `${file}:${line}: ${path === '' ? '' : `${path}: `}${message}`;
}

const word = {
  test: /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/,
  hint: '1 to 63 letters, digits, ".", "_" or "-", the first a letter or digit',
};
const names = 80;
const longTexts = 4096;
const price: Range = { min: 0, max: 1_000_000 };
const gigabytes: Range = { min: 0, max: 10_000_000 };
const counts: Range = { min: 1, max: 64 };
const vcpus: Range = { min: 1, max: 1024 };

interface NewType {
  readonly type: GpuType;
  /** Otherwise nothing can be said of prices for other counts. */
  readonly countsAreSound: boolean;
}

class CatalogReader {
  readonly #problems: readonly Problem[];
  readonly #gpuTypes: GpuType[] = [];
  /** In lower case, as they are matched. */
  readonly #names = new Set<string>();
  readonly #specs: Spec[] = [];

  constructor(problems: readonly Problem[]) {
    this.#problems = problems;
  }

  read(root: Place): Catalog {
    const fields = root.fields('a map with the fields gpu_types, prices and templates');
    for (const place of fields.required('gpu_types').list('GPU types', 1)) this.#gpuType(place);
    const canJudge = this.#problems.length === 0;
    const prices = readPrices(fields.required('prices'));
    const templatesPlace = fields.required('templates');
    const templates = templatesPlace
      .list('templates', 1)
      .map((place) => ({ place, template: this.#template(place, canJudge) }));
    fields.finish();
    refuseAmbiguousTemplates(templates, templatesPlace);
    return {
      gpuTypes: this.#gpuTypes,
      specs: this.#specs,
      templates: templates.map(({ template }) => template),
      prices,
    };
  }

  #gpuType(place: Place): void {
    const fields = place.fields('a GPU type: a map that starts with its name');
    const namePlace = fields.required('name');
    const name = namePlace.text(63, word);
    if (name !== '' && this.#names.has(name.toLowerCase()))
      namePlace.problem(`The GPU type "${name.toLowerCase()}" is there already.`);
    this.#names.add(name.toLowerCase());
    const problemsBefore = this.#problems.length;
    const gpuCounts = distinctIntegers(fields.required('counts'), 'numbers of GPUs', counts, 1);
    const countsAreSound = this.#problems.length === problemsBefore;
    const attach = fields.required('attach').text(63, word);
    const hosts = readHosts(fields.optional('hosts'));
    const type = {
      name,
      displayName: fields.required('display_name').text(names),
      vramGb: fields.required('vram_gb').integer(gigabytes),
      counts: gpuCounts,
      attach,
      hosts,
      devices: readDevices(fields.optional('devices'), { attach, hosts }),
    };
    this.#gpuTypes.push(type);
    const offers = fields.required('modes').fields(`a map of modes: ${modes.join(', ')}`);
    this.#modes({ type, countsAreSound }, offers);
    fields.finish();
  }

  #modes(type: NewType, fields: Fields): void {
    for (const mode of modes) {
      const place = fields.optional(mode);
      if (place) this.#specs.push(...readMode(type, mode, place));
    }
    fields.finish();
    if (fields.entries().length === 0 && !fields.silent)
      fields.place.problem(`There must be at least one mode: ${modes.join(', ')}.`);
  }

  #template(place: Place, canJudge: boolean): Template {
    const fields = place.fields('a template: a map that starts with its key');
    const template: Template = {
      key: fields.required('key').text(63, word),
      displayName: fields.required('display_name').text(names),
      extendedDescription: fields.required('extended_description').text(longTexts),
      source: fields.required('source').text(63, word),
      hosts: readHosts(fields.optional('hosts')),
      openPorts: distinctIntegers(fields.optional('open_ports'), 'ports', { min: 1, max: 65_535 }),
      startupCommands: texts(fields.optional('startup_commands')),
      startupMinutes: fields.optional('startup_minutes')?.integer({ min: 0, max: 1440 }) ?? 1,
      version: fields.optional('version')?.integer({ min: 1, max: 1_000_000 }) ?? 1,
      isDefault: fields.optional('default')?.flag() ?? false,
      defaultSpecs: this.#defaultSpecs(fields.required('default_specs'), canJudge),
      automountFolders: texts(fields.optional('automount_folders')),
      cleanupCommands: texts(fields.optional('cleanup_commands')),
    };
    fields.finish();
    return template;
  }

  #defaultSpecs(place: Place, canJudge: boolean): DefaultSpecs {
    const before = this.#problems.length;
    const fields = place.fields('a map with cores, gpu_type, num_gpus and storage_gb');
    const wanted = {
      cores: fields.required('cores').integer(vcpus),
      gpuType: fields.required('gpu_type').text(63, word),
      numGpus: fields.required('num_gpus').integer(counts),
      storageGb: fields.required('storage_gb').integer(gigabytes),
    };
    fields.finish();
    const isSound = canJudge && this.#problems.length === before && !place.isMissing();
    if (isSound && !this.#specs.some((spec) => fits(spec, wanted)))
      place.problem(
        'No mode of gpu_types offers these values together; choose some that one offers.',
      );
    return wanted;
  }
}

const fits = (spec: Spec, wanted: DefaultSpecs): boolean =>
  spec.gpuType === wanted.gpuType &&
  spec.gpuCount === wanted.numGpus &&
  spec.vcpuOptions.includes(wanted.cores) &&
  wanted.storageGb >= spec.storageGb.min &&
  wanted.storageGb <= spec.storageGb.max;

function readMode({ type, countsAreSound }: NewType, mode: Mode, place: Place): Spec[] {
  const fields = place.fields('a map of what the mode offers');
  const offer = {
    vcpuOptions: readVcpus(fields.required('vcpus')),
    ramPerVcpuGib: fields.required('ram_per_vcpu_gib').integer({ min: 1, max: 1024 }),
    storageGb: readRange(fields.required('storage_gb'), { ...gigabytes, min: 1 }),
    ephemeralStorageGb: readOptionalRange(fields.optional('ephemeral_storage_gb')),
  };
  const prices = fields.required('price_per_hour').fields('a map from a number of GPUs to a price');
  const specs = type.counts.map((gpuCount) => ({
    key: specKey(type.name, gpuCount, mode),
    gpuType: type.name,
    gpuCount,
    mode,
    ...offer,
    pricePerHour: prices.required(String(gpuCount)).number(price),
  }));
  if (countsAreSound) prices.finish();
  fields.finish();
  return specs;
}

/** A list of choices, or the ends of a range of which every number is one. */
function readVcpus(place: Place): number[] {
  if (!place.isMap()) return distinctIntegers(place, 'numbers of vCPUs (or min and max)', vcpus, 1);
  return numbersOf(readRange(place, vcpus));
}

const readOptionalRange = (place: Place | undefined): Range =>
  place ? readRange(place, gigabytes) : { min: 0, max: 0 };

function readRange(place: Place, limits: Range): Range {
  const fields = place.fields('a map with min and max');
  const min = fields.required('min').integer(limits);
  const max = fields.required('max').integer(limits);
  fields.finish();
  if (max >= min) return { min, max };
  if (fields.optional('min') && fields.optional('max'))
    place.problem(`The max is ${max}, but must be at least the min, which is ${min}.`);
  return { min, max: min };
}

function readPrices(place: Place): Prices {
  const fields = place.fields('a map with additional_vcpus, disk_gb and ephemeral_disk_gb');
  const prices = {
    additionalVcpus: fields.required('additional_vcpus').number(price),
    diskGb: fields.required('disk_gb').number(price),
    ephemeralDiskGb: fields.required('ephemeral_disk_gb').number(price),
  };
  fields.finish();
  return prices;
}

/** Ascending. */
function distinctIntegers(
  place: Place | undefined,
  what: string,
  limits: Range,
  least = 0,
): number[] {
  const found = new Set<number>();
  for (const item of place?.list(what, least) ?? []) {
    const value = item.integerIfAny(limits);
    if (value === undefined) continue;
    if (found.has(value)) item.problem(`The number ${value} is there twice.`);
    found.add(value);
  }
  return [...found].toSorted((one, other) => one - other);
}

const texts = (place: Place | undefined): string[] =>
  (place?.list('texts') ?? []).map((item) => item.text(longTexts));

/** Clients name a template by its key or its display name, so each of these words may lead to one only. */
function refuseAmbiguousTemplates(
  read: readonly { readonly place: Place; readonly template: Template }[],
  whole: Place,
): void {
  const owners = new Map<string, Template>();
  for (const { place, template } of read) {
    const { key, displayName } = template;
    for (const name of new Set([key, displayName].map((one) => one.toLowerCase()))) {
      const owner = owners.get(name);
      if (owner && name !== '')
        place.problem(`The template "${owner.key}" has the key or display name "${name}" already.`);
      else owners.set(name, template);
    }
  }
  const defaults = read.filter(({ template }) => template.isDefault);
  if (defaults.length === 0 && read.length > 0)
    whole.problem('No template is the default; exactly one must have "default: true".');
  for (const { place } of defaults.slice(1))
    place.problem('Another template is the default already; exactly one may be.');
}
