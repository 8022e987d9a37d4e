/** The contract's operations, for the tests that go through all of them. */

export interface ContractOperation {
  readonly method: string;
  readonly path: string;
  readonly access: 'token' | 'public';
  /** none: no field; optional: every field is; required: at least one field is. */
  readonly body: 'none' | 'optional' | 'required';
  /** A body of the right types, where one is needed to get as far as the resource. */
  readonly example?: Readonly<Record<string, unknown>>;
  /** Values of the wrong type, by field. */
  readonly wrong?: Readonly<Record<string, readonly unknown[]>>;
}

const integers = ['1', 1.5, true, [1], {}];
const texts = [1, true, ['x'], {}];
const lists = [80, '80', { 0: 80 }, ['80'], [80.5], [[80]], [true]];
const onToken = { access: 'token', body: 'none' } as const;
const read = { ...onToken, method: 'GET' } as const;
const isPublic = { access: 'public', body: 'none', method: 'GET' } as const;

export const wantedInstance = {
  cpu_cores: 1,
  disk_size_gb: 10,
  gpu_type: 'CPU',
  mode: 'prototyping',
  num_gpus: 1,
  template: 'base',
} as const;

const sizes = {
  cpu_cores: integers,
  disk_size_gb: integers,
  gpu_type: texts,
  num_gpus: integers,
  mode: [...texts, 'fast'],
  ephemeral_disk_gb: integers,
};
const ports = { add_ports: lists, remove_ports: lists };

export const OPERATIONS: readonly ContractOperation[] = [
  {
    ...{ method: 'POST', path: '/v1/instances/{id}/add_key', access: 'token', body: 'optional' },
    wrong: { public_key: texts, verify: ['true', 1, []], expires_in_seconds: integers },
  },
  { ...read, path: '/v1/snapshots/list' },
  {
    ...{ method: 'POST', path: '/v1/instances/create', access: 'token', body: 'required' },
    example: wantedInstance,
    wrong: { ...sizes, template: texts, public_key: texts },
  },
  { ...read, path: '/v1/instances/list' },
  { ...read, path: '/v1/instances/{id}' },
  {
    ...{ method: 'POST', path: '/v1/instances/{id}/modify', access: 'token', body: 'optional' },
    wrong: { ...sizes, ...ports },
  },
  {
    ...{ method: 'PATCH', path: '/v1/instances/{id}/ports', access: 'token', body: 'optional' },
    wrong: ports,
  },
  { ...onToken, method: 'POST', path: '/v1/instances/{id}/delete' },
  { ...onToken, method: 'POST', path: '/v1/instances/{id}/start' },
  { ...onToken, method: 'POST', path: '/v1/instances/{id}/stop' },
  { ...read, path: '/v1/instances/{id}/keys' },
  { ...onToken, method: 'DELETE', path: '/v1/instances/{id}/keys/{fingerprint}' },
  {
    ...{ method: 'POST', path: '/v1/snapshots/create', access: 'token', body: 'required' },
    example: { instanceId: '987654', name: 'of-nothing' },
    wrong: { instanceId: [0, ...texts], name: texts },
  },
  { ...onToken, method: 'DELETE', path: '/v1/snapshots/{id}' },
  { ...read, path: '/v1/auth/validate' },
  {
    ...{ method: 'POST', path: '/v1/token/create', access: 'token', body: 'required' },
    example: { name: 'from-the-table' },
    wrong: { name: texts },
  },
  { ...read, path: '/v1/tokens' },
  {
    ...{ method: 'DELETE', path: '/v1/token/delete', access: 'token', body: 'required' },
    example: { name: 'never-made' },
    wrong: { name: texts },
  },
  {
    ...{ method: 'POST', path: '/v1/keys/add', access: 'token', body: 'required' },
    example: { name: 'refused', public_key: 'no key' },
    wrong: { name: texts, public_key: texts },
  },
  { ...read, path: '/v1/keys/list' },
  { ...onToken, method: 'DELETE', path: '/v1/keys/{id}' },
  { ...isPublic, path: '/v1/specs' },
  { ...isPublic, path: '/v1/status' },
  { ...isPublic, path: '/v1/pricing' },
  { ...isPublic, path: '/v1/thunder-templates' },
  { ...isPublic, path: '/openapi.json' },
  { ...isPublic, path: '/docs' },
  { ...isPublic, path: '/healthz' },
  { ...isPublic, path: '/readyz' },
];

export const nameOf = (operation: ContractOperation): string =>
  `${operation.method} ${operation.path}`;

export const withToken = OPERATIONS.filter((one) => one.access === 'token');
export const withId = withToken.filter((one) => one.path.includes('{id}'));
export const reads = OPERATIONS.filter((one) => one.method === 'GET');
export const mutations = withToken.filter((one) => one.method !== 'GET');

/** Neither a key nor a snapshot has this fingerprint. */
const fingerprint = `SHA256:${'A'.repeat(43)}`;

export function pathOf(operation: ContractOperation, id: string): string {
  return operation.path
    .replace('{id}', id)
    .replace('{fingerprint}', encodeURIComponent(fingerprint));
}
