/**
 * A typed client of the HTTP API, on nothing but the global `fetch`: the CLI uses it, and a browser can.
 * `transport.ts` sends the requests, and says which of them are sent again.
 */

import type {
  CreateTokenRequest,
  CreateTokenResponse,
  TokenList,
  TokenNameRequest,
  ValidateResponse,
} from './account.ts';
import type { PlacingStatus, Pricing, SpecList, TemplateMap } from './catalog.ts';
import type { Message } from './common.ts';
import type { AddKeyRequest, AddKeyResponse, InstanceKey } from './instance-keys.ts';
import type {
  ChangePortsRequest,
  ModifiedInstance,
  ModifyInstanceRequest,
} from './instance-modify.ts';
import type {
  CreateInstanceRequest,
  CreateInstanceResponse,
  Instance,
  InstanceMap,
} from './instances.ts';
import type { AddBookKeyRequest, AddBookKeyResponse, BookKeyList, KeyPlaceList } from './keys.ts';
import type { Readiness } from './service.ts';
import { askSnapshots, type SnapshotFilter, type SnapshotWish } from './snapshot-pages.ts';
import type { CreateSnapshotRequest, SnapshotList } from './snapshots.ts';
import { type ClientOptions, createSender } from './transport.ts';

export { ApiError, type ClientOptions, UnreachableError } from './transport.ts';

export type Client = ReturnType<typeof createClient>;

/** Throws `TypeError` for a base URL or a token that cannot be used; its message does not repeat them. */
export function createClient(options: ClientOptions) {
  const send = createSender(options);
  return {
    /** What the service can do here; an `ApiError` of status 503 when it is not ready. */
    readiness: () => send<Readiness>('GET', '/readyz'),

    validateToken: () => send<ValidateResponse>('GET', '/v1/auth/validate'),
    /** The answer is the only place where the token is ever shown. */
    createToken: (body: CreateTokenRequest) =>
      send<CreateTokenResponse>('POST', '/v1/token/create', { body }),
    listTokens: () => send<TokenList>('GET', '/v1/tokens'),
    deleteToken: (body: TokenNameRequest) => send<Message>('DELETE', '/v1/token/delete', { body }),

    createInstance: (body: CreateInstanceRequest) =>
      send<CreateInstanceResponse>('POST', '/v1/instances/create', { body }),
    /** Keyed by the instance's number. */
    listInstances: () => send<InstanceMap>('GET', '/v1/instances/list'),
    getInstance: (id: string) => send<Instance>('GET', '/v1/instances/{id}', { values: { id } }),
    /** What is left out stays; the same again changes nothing more. */
    modifyInstance: (id: string, body: ModifyInstanceRequest) =>
      send<ModifiedInstance>('POST', '/v1/instances/{id}/modify', { values: { id }, body }),
    changePorts: (id: string, body: ChangePortsRequest) =>
      send<ModifiedInstance>('PATCH', '/v1/instances/{id}/ports', { values: { id }, body }),
    deleteInstance: (id: string) =>
      send<Message>('POST', '/v1/instances/{id}/delete', { values: { id } }),
    startInstance: (id: string) =>
      send<Message>('POST', '/v1/instances/{id}/start', { values: { id } }),
    stopInstance: (id: string) =>
      send<Message>('POST', '/v1/instances/{id}/stop', { values: { id } }),

    /** Without `public_key` the answer carries a private key, shown this once. */
    addKey: (id: string, body: AddKeyRequest = {}) =>
      send<AddKeyResponse>('POST', '/v1/instances/{id}/add_key', { values: { id }, body }),
    listKeys: (id: string) =>
      send<InstanceKey[]>('GET', '/v1/instances/{id}/keys', { values: { id } }),
    /** The same with how the file and the records agree; what is recorded but missing follows. */
    listKeysWithPresence: (id: string) =>
      send<InstanceKey[]>('GET', '/v1/instances/{id}/keys', {
        values: { id },
        query: { presence: 'true' },
      }),
    /** `fingerprint` with or without `SHA256:`. */
    removeKey: (id: string, fingerprint: string) =>
      send<void>('DELETE', '/v1/instances/{id}/keys/{fingerprint}', {
        values: { id, fingerprint },
      }),

    /** The organization's address book of keys. */
    addBookKey: (body: AddBookKeyRequest) =>
      send<AddBookKeyResponse>('POST', '/v1/keys/add', { body }),
    listBookKeys: () => send<BookKeyList>('GET', '/v1/keys/list'),
    deleteBookKey: (id: string) => send<void>('DELETE', '/v1/keys/{id}', { values: { id } }),
    /** `id` of the address book, or a fingerprint. `missing`: also where it is only recorded. */
    listKeyInstances: (id: string, { missing = false } = {}) =>
      send<KeyPlaceList>('GET', '/v1/keys/{id}/instances', {
        values: { id },
        query: { missing: missing ? 'true' : undefined },
      }),

    /** What instances can be, and its price; these want no token. */
    listSpecs: () => send<SpecList>('GET', '/v1/specs'),
    showStatus: () => send<PlacingStatus>('GET', '/v1/status'),
    showPricing: () => send<Pricing>('GET', '/v1/pricing'),
    listTemplates: () => send<TemplateMap>('GET', '/v1/thunder-templates'),

    createSnapshot: (body: CreateSnapshotRequest) =>
      send<Message>('POST', '/v1/snapshots/create', { body }),
    listSnapshots: (filter: SnapshotFilter = {}) =>
      send<SnapshotList>('GET', '/v1/snapshots/list', { query: { ...filter } }),
    /** One answer of the list with what its headers say; undefined when it is still the one of `etag`. */
    askSnapshots: (filter: SnapshotFilter = {}, wish: SnapshotWish = {}) =>
      askSnapshots(send, filter, wish),
    /** By UUID. */
    deleteSnapshot: (id: string) => send<void>('DELETE', '/v1/snapshots/{id}', { values: { id } }),
  };
}
