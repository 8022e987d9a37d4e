import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  type AddKeyRequest,
  type AddKeyResponse,
  addKeyOperation,
  type InstanceKey,
  listKeysOperation,
  removeKeyOperation,
} from '../../api/instance-keys.ts';
import type {
  AddKeyInput,
  ConfirmedKey,
  InstanceKeyService,
} from '../../services/instance-keys.ts';
import type {
  InstanceKeyListService,
  KeyPresenceView,
  KeyView,
} from '../../services/instance-keys-list.ts';
import { actorOf } from '../auth.ts';
import { whenUndelivered } from '../delivery.ts';
import { keepWithWork } from '../idempotency.ts';

/** Add a key to a running instance, list its keys, remove one. */
export const instanceKeyRoutes =
  (keys: InstanceKeyService, list: InstanceKeyListService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.post(
      '/v1/instances/:id/add_key',
      { config: { audit: 'key.add', scope: 'keys:write' }, schema: addKeyOperation },
      async (request, reply) => {
        reply.header('cache-control', 'no-store');
        const onConfirm = keepWithWork(request, reply, addedKeyView);
        const { id } = request.params;
        const added = await keys.add(actorOf(request), id, toInput(request.body), onConfirm);
        whenUndelivered(reply, added.takeBack);
        return addedKeyView(added);
      },
    );

    app.get(
      '/v1/instances/:id/keys',
      { config: { scope: 'instances:read' }, schema: listKeysOperation },
      async (request) => {
        const { id } = request.params;
        if (request.query.presence !== 'true')
          return (await list.list(actorOf(request), id)).map(keyView);
        return (await list.listWithPresence(actorOf(request), id)).map(presenceView);
      },
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

const addedKeyView = (added: ConfirmedKey): AddKeyResponse => ({
  success: true,
  uuid: added.uuid,
  key: added.privateKey,
  message: added.message,
});

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

function presenceView(key: KeyPresenceView): InstanceKey {
  return {
    ...keyView(key),
    presence: key.presence,
    ...(key.access && { access: key.access }),
    ...(key.expiresAt === undefined ? {} : { expires_at: new Date(key.expiresAt).toISOString() }),
  };
}
