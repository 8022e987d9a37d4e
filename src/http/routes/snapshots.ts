import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import {
  createSnapshotOperation,
  deleteSnapshotOperation,
  listSnapshotsOperation,
} from '../../api/snapshots.ts';
import type { SnapshotService } from '../../services/snapshots.ts';
import { actorOf } from '../auth.ts';
import { jsonType } from '../error-handler.ts';
import { matchesEtag } from '../etag.ts';

/** List, create and delete snapshots. */
export const snapshotRoutes =
  (snapshots: SnapshotService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.get(
      '/v1/snapshots/list',
      { config: { scope: 'snapshots:read' }, schema: listSnapshotsOperation },
      async (request, reply) => {
        const { body, etag } = await snapshots.list(actorOf(request));
        reply.header('etag', etag);
        if (matchesEtag(request.headers['if-none-match'], etag)) return reply.code(304).send(null);
        return reply.header('content-type', jsonType).send(body);
      },
    );

    app.post(
      '/v1/snapshots/create',
      {
        config: { audit: 'snapshot.create', scope: 'snapshots:write' },
        schema: createSnapshotOperation,
      },
      async (request, reply) => {
        const { instanceId, name } = request.body;
        await snapshots.create(actorOf(request), instanceId, name);
        return reply.code(202).send({ message: `The snapshot "${name}" is being created.` });
      },
    );

    app.delete(
      '/v1/snapshots/:id',
      {
        config: { audit: 'snapshot.delete', scope: 'snapshots:write' },
        schema: deleteSnapshotOperation,
      },
      async (request, reply) => {
        await snapshots.delete(actorOf(request), request.params.id);
        return reply.code(204).send(null);
      },
    );
  };
