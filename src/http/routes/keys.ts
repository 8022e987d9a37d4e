import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  addBookKeyOperation,
  type BookKey,
  deleteBookKeyOperation,
  type KeyPlace,
  KeyPlaceQuery,
  KeyPlaceTailParams,
  listBookKeysOperation,
  listKeyPlacesOperation,
} from '../../api/keys.ts';
import type { KeyPlaceService, KeyPlace as Place } from '../../services/key-places.ts';
import type { KeyService } from '../../services/keys.ts';
import { actorOf } from '../auth.ts';
import { keepWithWork } from '../idempotency.ts';

/** The organization's address book of keys, and where a key is authorized. */
export const keyRoutes =
  (keys: KeyService, places: KeyPlaceService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.post(
      '/v1/keys/add',
      { config: { audit: 'key_book.add', scope: 'keys:write' }, schema: addBookKeyOperation },
      async (request, reply) => {
        const { name, public_key: publicKey } = request.body;
        const onConfirm = keepWithWork(request, reply, addedView);
        return addedView(await keys.add(actorOf(request), name, publicKey, onConfirm));
      },
    );

    app.get(
      '/v1/keys/list',
      { config: { scope: ['instances:read', 'keys:write'] }, schema: listBookKeysOperation },
      async (request) => (await keys.list(actorOf(request))).map(bookKeyView),
    );

    app.delete(
      '/v1/keys/:id',
      { config: { audit: 'key_book.remove', scope: 'keys:write' }, schema: deleteBookKeyOperation },
      async (request, reply) => {
        await keys.delete(actorOf(request), request.params.id);
        return reply.code(204).send(null);
      },
    );

    app.get(
      '/v1/keys/:id/instances',
      { config: { scope: 'instances:read' }, schema: listKeyPlacesOperation },
      async (request) => {
        const withMissing = request.query.missing === 'true';
        const { id } = request.params;
        return (await places.find(actorOf(request), id, withMissing)).map(placeView);
      },
    );

    // The same for a fingerprint with a "/" that the client did not encode. "::" is a colon to the router.
    app.get(
      '/v1/keys/SHA256::*',
      {
        config: { scope: 'instances:read' },
        schema: { hide: true, params: KeyPlaceTailParams, querystring: KeyPlaceQuery },
      },
      async (request, reply) => {
        const [, digest] = /^(.*)\/instances$/.exec(request.params['*']) ?? [];
        if (digest === undefined) return reply.callNotFound();
        const withMissing = request.query.missing === 'true';
        return (await places.find(actorOf(request), digest, withMissing)).map(placeView);
      },
    );
  };

type BookKeyRow = Awaited<ReturnType<KeyService['list']>>[number];

function bookKeyView(row: BookKeyRow): BookKey {
  return {
    id: row.id,
    name: row.name,
    public_key: row.public_key,
    fingerprint: row.fingerprint,
    key_type: row.key_type,
    created_at: Math.floor(row.created_at / 1000),
  };
}

function addedView(row: BookKeyRow) {
  const key = bookKeyView(row);
  return { key, message: `"${key.name}" (${key.fingerprint}) is in the address book.` };
}

function placeView({ instance, presence, access, source, reason }: Place): KeyPlace {
  return {
    uuid: instance.id,
    identifier: instance.identifier,
    name: instance.name,
    status: instance.status,
    presence,
    ...(access && { access }),
    ...(source && { source }),
    ...(reason !== undefined && { reason }),
  };
}
