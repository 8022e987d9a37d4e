/** The answers of the wire contract, as parsers. */

import { fields, filledText, integer, listOf, mapOf, matching, oneOf, text } from './shape.ts';

export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
export const FINGERPRINT = /SHA256:[A-Za-z0-9+/]{43}/;
const RFC_3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
const DIGITS = /^\d+$/;

const uuid = matching(UUID);
const moment = matching(RFC_3339);
const digits = matching(DIGITS);

export const INSTANCE_STATUSES = [
  'PROVISIONING',
  'STARTING',
  'RUNNING',
  'STOPPING',
  'STOPPED',
  'SNAPPING',
  'RESTORING',
  'MODIFYING',
  'UNKNOWN',
] as const;
export type InstanceStatus = (typeof INSTANCE_STATUSES)[number];

export const instance = fields(
  {
    id: digits,
    uuid,
    name: filledText,
    status: oneOf(...INSTANCE_STATUSES),
    createdAt: moment,
    cpuCores: digits,
    numGpus: digits,
    memory: digits,
    storage: integer,
    ephemeralDiskGB: integer,
    gpuType: filledText,
    mode: oneOf('prototyping', 'production'),
    template: filledText,
    httpPorts: listOf(integer),
    sshPublicKeys: listOf(filledText),
    k8s: oneOf(false),
    promoted: oneOf(false),
  },
  {
    ip: filledText,
    port: integer,
    provisioningTime: moment,
    restoringTime: moment,
    failure: filledText,
  },
);
export type Instance = ReturnType<typeof instance>;
export const instanceMap = mapOf(instance);

export const createdInstance = fields({ uuid, identifier: integer, key: text });

export const addedKey = fields({
  success: oneOf(true),
  uuid,
  key: text,
  message: matching(FINGERPRINT),
});
export type AddedKey = ReturnType<typeof addedKey>;

export const instanceKeys = listOf(
  fields(
    {
      fingerprint: matching(new RegExp(`^${FINGERPRINT.source}$`)),
      key_type: filledText,
      comment: text,
      public_key: filledText,
      source: filledText,
    },
    { added_at: moment },
  ),
);

export const snapshot = fields({
  createdAt: integer,
  id: uuid,
  minimumDiskSizeGb: integer,
  name: filledText,
  status: oneOf('CREATING', 'READY', 'FAILED'),
});
export type Snapshot = ReturnType<typeof snapshot>;
export const snapshots = listOf(snapshot);

export const message = fields({ message: filledText });

export const validated = fields({ valid: oneOf(true), email: filledText, org_name: filledText });

export const newToken = fields({ token: filledText });

export const tokens = listOf(
  fields(
    { name: filledText, prefix: filledText, scopes: listOf(filledText), created_at: integer },
    { last_used_at: integer, expires_at: integer },
  ),
);
