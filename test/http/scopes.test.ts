/** Every route with a token of every single scope: refused exactly where the scope does not cover it. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Fastify from 'fastify';
import { allScopes, type Scope } from '../../src/domain/scopes.ts';
import { requireToken } from '../../src/http/auth.ts';
import { openEdge } from '../../src/http/edge.ts';
import { handleError } from '../../src/http/error-handler.ts';
import { AdminTokenService } from '../../src/services/admin-tokens.ts';
import { claimPorts } from '../support/ports.ts';
import { allRoutes, fill, type Route } from '../support/routes.ts';
import { type Served, serve } from './served.ts';

/** Written down a second time on purpose. A route that is new has to be added here. */
const wanted: Readonly<Record<string, readonly Scope[] | 'any'>> = {
  'POST /v1/instances/create': ['instances:write'],
  'GET /v1/instances/list': ['instances:read'],
  'GET /v1/instances/{id}': ['instances:read'],
  'POST /v1/instances/{id}/start': ['instances:write'],
  'POST /v1/instances/{id}/stop': ['instances:write'],
  'POST /v1/instances/{id}/delete': ['instances:write'],
  'POST /v1/instances/{id}/modify': ['instances:write'],
  'PATCH /v1/instances/{id}/ports': ['instances:write'],
  'POST /v1/instances/{id}/add_key': ['keys:write'],
  'GET /v1/instances/{id}/keys': ['instances:read'],
  'DELETE /v1/instances/{id}/keys/{fingerprint}': ['keys:write'],
  'POST /v1/keys/add': ['keys:write'],
  'GET /v1/keys/list': ['instances:read', 'keys:write'],
  'DELETE /v1/keys/{id}': ['keys:write'],
  'GET /v1/keys/{id}/instances': ['instances:read'],
  'GET /v1/snapshots/list': ['snapshots:read'],
  'POST /v1/snapshots/create': ['snapshots:write'],
  'DELETE /v1/snapshots/{id}': ['snapshots:write'],
  'GET /v1/auth/validate': 'any',
  'POST /v1/token/create': 'any',
  'GET /v1/tokens': 'any',
  'DELETE /v1/token/delete': 'any',
  'GET /v1/audit': ['admin'],
};

const nobody = {
  id: '00000000-0000-4000-8000-000000000000',
  fingerprint: 'SHA256:2pcKRYoVwhqkCxCU9fFTdo2wWRo5Jcd0VjZ8HyTIQ1c',
};

let served: Served;
let routes: Route[];
const tokens = new Map<Scope, string>();

before(async () => {
  served = await serve(await claimPorts(4));
  routes = await allRoutes(served.url);
  const admin = new AdminTokenService(served.shop.store, served.shop.context.now);
  for (const scope of allScopes) {
    const made = { organization: 'workshop', name: scope, scopes: [scope] };
    tokens.set(scope, (await admin.create(made)).token);
  }
});
after(() => served.close());

/** A body that no operation takes: what is not refused for its scope changes nothing. */
function call(route: Route, token: string | undefined): Promise<Response> {
  return fetch(served.url + fill(route.path, nobody), {
    method: route.method,
    headers: {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(route.method !== 'GET' && { 'content-type': 'application/json' }),
    },
    ...(route.method !== 'GET' && { body: '{"public_key": 7, "name": 7}' }),
    redirect: 'manual',
  });
}

test('every route that wants a token is in the table, and the table has no other', () => {
  const named = routes
    .filter((route) => !route.isPublic)
    .map(({ method, path }) => `${method} ${path}`);
  assert.deepEqual(named.sort(), Object.keys(wanted).sort());
});

for (const scope of allScopes) {
  test(`a token of ${scope} alone is refused where that does not cover, and nowhere else`, async () => {
    for (const route of routes) {
      const line = `${route.method} ${route.path}`;
      const choices = route.isPublic ? 'any' : (wanted[line] ?? ['admin']);
      const isCovered = choices === 'any' || scope === 'admin' || choices.includes(scope);
      const answer = await call(route, tokens.get(scope));
      const text = await answer.text();
      assert.equal(answer.status === 403, !isCovered, `${scope}: ${line} is ${answer.status}`);
      assert.notEqual(answer.status, 401, line);
      assert.ok(answer.status < 500, `${line} is ${answer.status}: ${text}`);
      if (isCovered) continue;
      const body = JSON.parse(text) as { error: string; message: string };
      assert.equal(body.error, 'forbidden');
      assert.ok(Array.isArray(choices) && choices.every((one) => body.message.includes(one)), text);
    }
  });
}

test('a route that says nothing of scopes wants admin; a public one wants nothing', async () => {
  const app = Fastify();
  app.setErrorHandler(handleError);
  requireToken(app, served.tokens, openEdge(served.shop.context.log).limiter);
  app.get('/undeclared', async () => 'done');
  app.get('/public', { config: { public: true } }, async () => 'done');
  const ask = async (url: string, token: string | undefined) =>
    (await app.inject({ url, headers: token ? { authorization: `Bearer ${token}` } : {} }))
      .statusCode;
  for (const scope of allScopes)
    assert.equal(await ask('/undeclared', tokens.get(scope)), scope === 'admin' ? 200 : 403);
  assert.equal(await ask('/undeclared', undefined), 401);
  assert.equal(await ask('/public', undefined), 200);
  await app.close();
});
