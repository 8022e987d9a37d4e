/** The answers of the contract that `support/contract.ts` does not have: modify, the address book, the catalog. */

import { FINGERPRINT } from '../support/contract.ts';
import {
  bool,
  decimal,
  fields,
  filledText,
  integer,
  listOf,
  mapOf,
  matching,
  oneOf,
  text,
} from '../support/shape.ts';

const mode = oneOf('prototyping', 'production');
const availability = oneOf('available', 'unavailable');
/** The contract writes [] for these: templates of other services have entries, which are text. */
const commands = listOf(filledText);
const range = fields({ min: integer, max: integer });

export const modified = fields(
  { identifier: matching(/^\d+$/), instance_name: filledText, http_ports: listOf(integer) },
  { gpu_type: filledText, mode, num_gpus: integer },
);

export const savedKey = fields({
  id: filledText,
  name: filledText,
  public_key: filledText,
  fingerprint: matching(new RegExp(`^${FINGERPRINT.source}$`)),
  key_type: filledText,
  created_at: integer,
});
export const savedKeys = listOf(savedKey);
export const addedSavedKey = fields({ key: savedKey, message: filledText });

export const specs = fields({
  specs: mapOf(
    fields({
      displayName: filledText,
      vramGB: integer,
      gpuCount: integer,
      mode,
      vcpuOptions: listOf(integer),
      ramPerVCPUGiB: integer,
      storageGB: range,
      ephemeralStorageGB: range,
    }),
  ),
});

export const availabilities = fields({
  gpu_type: mapOf(mapOf(availability)),
  specs: mapOf(availability),
});

export const pricing = fields({ pricing: mapOf(decimal) });

export const templates = mapOf(
  fields({
    displayName: filledText,
    extendedDescription: text,
    automountFolders: commands,
    cleanupCommands: commands,
    openPorts: listOf(integer),
    startupCommands: commands,
    startupMinutes: integer,
    version: integer,
    default: bool,
    defaultSpecs: fields({
      cores: integer,
      gpu_type: filledText,
      num_gpus: integer,
      storage: integer,
      template: filledText,
    }),
  }),
);
