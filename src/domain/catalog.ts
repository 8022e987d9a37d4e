/** What may be asked for. Built in for now: a host without GPUs. */

export interface GpuType {
  readonly name: string;
  readonly displayName: string;
  readonly counts: readonly number[];
  readonly ramPerVcpuGb: number;
}

export interface Template {
  readonly key: string;
  readonly displayName: string;
}

export interface Range {
  readonly min: number;
  readonly max: number;
}

export interface Catalog {
  readonly gpuTypes: readonly GpuType[];
  readonly templates: readonly Template[];
  readonly cpuCores: Range;
  readonly diskSizeGb: Range;
  readonly ephemeralDiskGb: Range;
}

export const defaultCatalog: Catalog = {
  gpuTypes: [{ name: 'cpu', displayName: 'CPU only', counts: [1], ramPerVcpuGb: 4 }],
  templates: [{ key: 'base', displayName: 'Base' }],
  cpuCores: { min: 1, max: 64 },
  diskSizeGb: { min: 1, max: 2048 },
  ephemeralDiskGb: { min: 0, max: 2048 },
};

/** Matched without regard to case, as clients write it in many ways. */
export function findGpuType(catalog: Catalog, name: string): GpuType | undefined {
  return catalog.gpuTypes.find((type) => type.name.toLowerCase() === name.toLowerCase());
}

/** By key, then by display name. */
export function findTemplate(catalog: Catalog, name: string): Template | undefined {
  const byKey = catalog.templates.find((template) => template.key === name);
  return (
    byKey ??
    catalog.templates.find((template) => template.displayName.toLowerCase() === name.toLowerCase())
  );
}
