/** The routes of the service, as its own /openapi.json lists them, held against the contract's list. */

import assert from 'node:assert/strict';
import { exchange } from './http.ts';

export interface Route {
  readonly method: string;
  /** With `{id}` and the like in it. */
  readonly path: string;
  readonly isPublic: boolean;
}

/** What has to be there; a route that disappears is never silently untested. */
const CONTRACT_ROUTES = [
  'POST /v1/instances/{id}/add_key',
  'GET /v1/snapshots/list',
  'POST /v1/instances/create',
  'GET /v1/instances/list',
  'GET /v1/instances/{id}',
  'POST /v1/instances/{id}/delete',
  'POST /v1/instances/{id}/start',
  'POST /v1/instances/{id}/stop',
  'POST /v1/instances/{id}/modify',
  'PATCH /v1/instances/{id}/ports',
  'GET /v1/instances/{id}/keys',
  'DELETE /v1/instances/{id}/keys/{fingerprint}',
  'POST /v1/keys/add',
  'GET /v1/keys/list',
  'DELETE /v1/keys/{id}',
  'GET /v1/keys/{id}/instances',
  'POST /v1/snapshots/create',
  'DELETE /v1/snapshots/{id}',
  'GET /v1/auth/validate',
  'POST /v1/token/create',
  'GET /v1/tokens',
  'DELETE /v1/token/delete',
  'GET /v1/specs',
  'GET /v1/status',
  'GET /v1/pricing',
  'GET /v1/thunder-templates',
];

const PUBLIC_PATHS = [
  '/v1/specs',
  '/v1/status',
  '/v1/pricing',
  '/v1/thunder-templates',
  '/openapi.json',
  '/healthz',
  '/readyz',
];

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

function isPublic(path: string): boolean {
  return PUBLIC_PATHS.includes(path) || path === '/docs' || path.startsWith('/docs/');
}

/** The routes /openapi.json lists. */
async function documentedRoutes(baseUrl: string): Promise<string[]> {
  const answer = await exchange(baseUrl, { method: 'GET', path: '/openapi.json' });
  assert.equal(answer.status, 200, answer.text);
  const document = JSON.parse(answer.text) as { openapi: string; paths: Record<string, object> };
  assert.match(document.openapi, /^3\.1\./);
  return Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => method in item).map((method) => `${method.toUpperCase()} ${path}`),
  );
}

/** Operations of the contract that /openapi.json does not list. */
export async function undocumentedRoutes(baseUrl: string): Promise<string[]> {
  const documented = await documentedRoutes(baseUrl);
  return CONTRACT_ROUTES.filter((wanted) => !documented.includes(wanted));
}

/** Every route of /openapi.json and of the contract. */
export async function allRoutes(baseUrl: string): Promise<Route[]> {
  const all = new Set([...(await documentedRoutes(baseUrl)), ...CONTRACT_ROUTES]);
  return [...all].map((line) => {
    const [method = '', path = ''] = line.split(' ');
    return { method, path, isPublic: isPublic(path) };
  });
}

/** The path with its parameters filled in. */
export function fill(path: string, values: Readonly<Record<string, string>>): string {
  return path.replaceAll(/\{([^}]+)\}/g, (_, name: string) => values[name] ?? values.other ?? 'x');
}
