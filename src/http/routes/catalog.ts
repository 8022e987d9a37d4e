import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  listSpecsOperation,
  listTemplatesOperation,
  type PlacingStatus,
  type Pricing,
  type Spec as SpecView,
  showPricingOperation,
  showStatusOperation,
  type Template as TemplateView,
} from '../../api/catalog.ts';
import { type Catalog, findGpuType, type Spec, type Template } from '../../domain/catalog.ts';
import type { Availability, CatalogService } from '../../services/catalog.ts';

/** What instances can be, what that costs, and what of it is to be had now. */
export const catalogRoutes =
  (catalogs: CatalogService): FastifyPluginAsyncTypebox =>
  async (app) => {
    const { catalog } = catalogs;
    const config = { public: true };

    app.get('/v1/specs', { config, schema: listSpecsOperation }, async () => ({
      specs: byKey(catalog.specs, (spec) => specView(catalog, spec)),
    }));

    app.get('/v1/status', { config, schema: showStatusOperation }, async () =>
      statusView(catalog, await catalogs.availability()),
    );

    app.get('/v1/pricing', { config, schema: showPricingOperation }, async () =>
      pricingView(catalog),
    );

    app.get('/v1/thunder-templates', { config, schema: listTemplatesOperation }, async () =>
      byKey(catalog.templates, templateView),
    );
  };

function byKey<T extends { readonly key: string }, V>(
  items: readonly T[],
  view: (item: T) => V,
): Record<string, V> {
  return Object.fromEntries(items.map((item) => [item.key, view(item)]));
}

function specView(catalog: Catalog, spec: Spec): SpecView {
  const gpuType = findGpuType(catalog, spec.gpuType);
  return {
    displayName: gpuType?.displayName ?? spec.gpuType,
    vramGB: gpuType?.vramGb ?? 0,
    gpuCount: spec.gpuCount,
    mode: spec.mode,
    vcpuOptions: [...spec.vcpuOptions],
    ramPerVCPUGiB: spec.ramPerVcpuGib,
    storageGB: { min: spec.storageGb.min, max: spec.storageGb.max },
    ephemeralStorageGB: { min: spec.ephemeralStorageGb.min, max: spec.ephemeralStorageGb.max },
  };
}

function statusView(catalog: Catalog, { canPlace }: Availability): PlacingStatus {
  const placeable = new Set(catalog.specs.filter(canPlace));
  const word = (isPlaceable: boolean): 'available' | 'unavailable' =>
    isPlaceable ? 'available' : 'unavailable';
  const wordOf = (spec: Spec) => word(placeable.has(spec));
  const modesOf = (name: string) => {
    const specs = catalog.specs.filter((one) => one.gpuType === name);
    const byMode = Object.entries(Object.groupBy(specs, (one) => one.mode));
    return Object.fromEntries(
      byMode.map(([mode, some]) => [mode, word(some.some((one) => placeable.has(one)))]),
    );
  };
  return {
    gpu_type: Object.fromEntries(catalog.gpuTypes.map(({ name }) => [name, modesOf(name)])),
    specs: byKey(catalog.specs, wordOf),
  };
}

function pricingView({ specs, prices }: Catalog): Pricing {
  return {
    pricing: {
      ...byKey(specs, (spec) => spec.pricePerHour),
      additional_vcpus: prices.additionalVcpus,
      disk_gb: prices.diskGb,
      ephemeral_disk_gb: prices.ephemeralDiskGb,
    },
  };
}

function templateView(template: Template): TemplateView {
  const { cores, gpuType, numGpus, storageGb } = template.defaultSpecs;
  return {
    displayName: template.displayName,
    extendedDescription: template.extendedDescription,
    automountFolders: [...template.automountFolders],
    cleanupCommands: [...template.cleanupCommands],
    openPorts: [...template.openPorts],
    startupCommands: [...template.startupCommands],
    startupMinutes: template.startupMinutes,
    version: template.version,
    default: template.isDefault,
    defaultSpecs: {
      cores,
      gpu_type: gpuType,
      num_gpus: numGpus,
      storage: storageGb,
      template: template.key,
    },
  };
}
