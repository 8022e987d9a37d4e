import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  type AddKeyRequest,
  addKeyOperation,
  type InstanceKey,
  listKeysOperation,
  removeKeyOperation,
} from '../../api/instance-keys.ts';
import type { AddKeyInput, InstanceKeyService } from '../../services/instance-keys.ts';
import type { InstanceKeyListService, KeyView } from '../../services/instance-keys-list.ts';
import { actorOf } from '../auth.ts';
import { whenUndelivered } from '../delivery.ts';

/** Add a key to a running instance, list its keys, remove one. */
export const instanceKeyRoutes =
  (keys: InstanceKeyService, list: InstanceKeyListService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.post(
      '/v1/instances/:id/add_key',
      { config: { audit: 'key.add', scope: 'keys:write' }, schema: addKeyOperation },
      async (request, reply) => {
        const added = await keys.add(actorOf(request), request.params.id, toInput(request.body));
        whenUndelivered(reply, added.takeBack);
        reply.header('cache-control', 'no-store');
        return { success: true, uuid: added.uuid, key: added.privateKey, message: added.message };
      },
    );

    app.get(
      '/v1/instances/:id/keys',
      { config: { scope: 'instances:read' }, schema: listKeysOperation },
      async (request) => (await list.list(actorOf(request), request.params.id)).map(keyView),
    );

    // A fingerprint may hold a "/": the wildcard takes it whether or not the client encoded it.
    app.delete(
      '/v1/instances/:id/keys/*',
      { config: { audit: 'key.remove', scope: 'keys:write' }, schema: removeKeyOperation },
      async (request, reply) => {
        await list.remove(actorOf(request), request.params.id, request.params['*']);
        return reply.code(204).send(null);
      },
    );
  };

function toInput(body: AddKeyRequest): AddKeyInput {
  return {
    verify: body.verify ?? false,
    ...(body.public_key === undefined ? {} : { publicKey: body.public_key }),
    ...(body.expires_in_seconds === undefined ? {} : { expiresInSeconds: body.expires_in_seconds }),
  };
}

function keyView(key: KeyView): InstanceKey {
  return {
    fingerprint: key.fingerprint,
    key_type: key.keyType,
    comment: key.comment,
    public_key: key.publicKey,
    ...(key.addedAt === undefined ? {} : { added_at: new Date(key.addedAt).toISOString() }),
    source: key.source,
  };
}
