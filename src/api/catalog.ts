import { type Static, Type } from 'typebox';
import { responses } from './common.ts';

const Range = (description: string) =>
  Type.Object(
    {
      min: Type.Integer({ description: 'The least, in GB.' }),
      max: Type.Integer({ description: 'The most, in GB.' }),
    },
    { description },
  );

const mode = Type.Union([Type.Literal('prototyping'), Type.Literal('production')], {
  description: 'How instances of it are placed.',
});

export const Spec = Type.Object({
  displayName: Type.String({ description: 'The name of its GPU type, for people.' }),
  vramGB: Type.Integer({ description: 'Memory of one GPU, in GB; 0 without one.' }),
  gpuCount: Type.Integer({ description: 'What to ask for as "num_gpus".' }),
  mode,
  vcpuOptions: Type.Array(Type.Integer(), {
    description: 'What may be asked for as "cpu_cores", ascending.',
  }),
  ramPerVCPUGiB: Type.Integer({ description: 'Memory that comes with each vCPU, in GiB.' }),
  storageGB: Range('What may be asked for as "disk_size_gb".'),
  ephemeralStorageGB: Range('What may be asked for as "ephemeral_disk_gb".'),
});
export type Spec = Static<typeof Spec>;

export const SpecList = Type.Object(
  {
    specs: Type.Record(Type.String(), Spec, {
      description: 'By key: the GPU type, "_x", how many, "_", the mode.',
    }),
  },
  {
    examples: [
      {
        specs: {
          cpu_x1_production: {
            displayName: 'CPU only',
            vramGB: 0,
            gpuCount: 1,
            mode: 'production',
            vcpuOptions: [2, 4, 8],
            ramPerVCPUGiB: 4,
            storageGB: { min: 10, max: 2048 },
            ephemeralStorageGB: { min: 0, max: 1024 },
          },
        },
      },
    ],
  },
);
export type SpecList = Static<typeof SpecList>;

const Available = Type.Union([Type.Literal('available'), Type.Literal('unavailable')]);

export const PlacingStatus = Type.Object(
  {
    gpu_type: Type.Record(Type.String(), Type.Record(Type.String(), Available), {
      description: 'By the name of the GPU type, then by mode.',
    }),
    specs: Type.Record(Type.String(), Available, { description: 'By the key of the spec.' }),
  },
  {
    examples: [
      {
        gpu_type: { cpu: { prototyping: 'available', production: 'available' } },
        specs: { cpu_x1_prototyping: 'available', cpu_x1_production: 'available' },
      },
    ],
  },
);
export type PlacingStatus = Static<typeof PlacingStatus>;

export const Pricing = Type.Object(
  {
    pricing: Type.Object(
      {
        additional_vcpus: Type.Number({ description: 'For each vCPU above the least.' }),
        disk_gb: Type.Number({ description: 'For each GB of disk.' }),
        ephemeral_disk_gb: Type.Number({ description: 'For each GB of ephemeral disk.' }),
      },
      {
        additionalProperties: Type.Number({ description: 'For the spec of this key.' }),
        description: 'Per hour: by the key of the spec, and what goes on top of it.',
      },
    ),
  },
  {
    examples: [
      {
        pricing: {
          cpu_x1_production: 0.12,
          additional_vcpus: 0.02,
          disk_gb: 0.0001,
          ephemeral_disk_gb: 0.00005,
        },
      },
    ],
  },
);
/** With the prices of the specs, which `Static` does not know of. */
export type Pricing = { pricing: Static<typeof Pricing>['pricing'] & Record<string, number> };

export const Template = Type.Object({
  displayName: Type.String({ description: 'Its name for people; "template" takes it too.' }),
  extendedDescription: Type.String({ description: 'What is in it.' }),
  automountFolders: Type.Array(Type.String(), { description: 'Folders that it keeps mounted.' }),
  cleanupCommands: Type.Array(Type.String(), { description: 'Commands that end what it started.' }),
  openPorts: Type.Array(Type.Integer(), { description: 'Ports that what is in it listens on.' }),
  startupCommands: Type.Array(Type.String(), { description: 'Commands that start what is in it.' }),
  startupMinutes: Type.Integer({ description: 'How long that takes, in minutes, at most.' }),
  version: Type.Integer({ description: 'Grows when the template changes.' }),
  default: Type.Boolean({ description: 'True for the one to propose.' }),
  defaultSpecs: Type.Object(
    {
      cores: Type.Integer({ description: 'For "cpu_cores".' }),
      gpu_type: Type.String({ description: 'For "gpu_type".' }),
      num_gpus: Type.Integer({ description: 'For "num_gpus".' }),
      storage: Type.Integer({ description: 'For "disk_size_gb".' }),
      template: Type.String({ description: 'For "template": the key of this one.' }),
    },
    { description: 'What to propose with it.' },
  ),
});
export type Template = Static<typeof Template>;

export const TemplateMap = Type.Record(Type.String(), Template, {
  description: 'By the key of the template.',
  examples: [
    {
      base: {
        displayName: 'Base',
        extendedDescription: 'The system of the host, with SSH and nothing else set up.',
        automountFolders: [],
        cleanupCommands: [],
        openPorts: [],
        startupCommands: [],
        startupMinutes: 1,
        version: 1,
        default: true,
        defaultSpecs: { cores: 2, gpu_type: 'cpu', num_gpus: 1, storage: 10, template: 'base' },
      },
    },
  ],
});
export type TemplateMap = Static<typeof TemplateMap>;

const open = { tags: ['Catalog'], security: [] };

export const listSpecsOperation = {
  ...open,
  operationId: 'listSpecs',
  summary: 'List what instances can be',
  description:
    'Every spec of the catalog: a type of GPU, how many and in which mode, with the vCPUs, memory and disks that may be asked for with it. It wants no token.',
  response: responses(200, SpecList, { description: 'Every spec, by key.', public: true }),
};

export const showStatusOperation = {
  ...open,
  operationId: 'showStatus',
  summary: 'Show what can be placed now',
  description:
    'For every GPU type and every spec of the catalog, whether an instance of it could be placed now. It wants no token.',
  response: responses(200, PlacingStatus, {
    description: 'What is available, and what is not.',
    public: true,
  }),
};

export const showPricingOperation = {
  ...open,
  operationId: 'showPricing',
  summary: 'Show the prices',
  description: 'The prices of the catalog, per hour, as numbers. It wants no token.',
  response: responses(200, Pricing, { description: 'The prices.', public: true }),
};

export const listTemplatesOperation = {
  ...open,
  operationId: 'listTemplates',
  summary: 'List the templates',
  description:
    'Every template of the catalog: what the disk of a new instance can start from. It wants no token.',
  response: responses(200, TemplateMap, { description: 'Every template, by key.', public: true }),
};
