import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import { Type } from 'typebox';
import { Message, responses } from '../../api/common.ts';
import { CreateSnapshotRequest, SnapshotList, SnapshotParams } from '../../api/snapshots.ts';
import type { SnapshotService } from '../../services/snapshots.ts';
import { actorOf } from '../auth.ts';
import { jsonType } from '../error-handler.ts';
import { matchesEtag } from '../etag.ts';

/** List, create and delete snapshots. */
export const snapshotRoutes =
  (snapshots: SnapshotService): FastifyPluginAsyncTypebox =>
  async (app) => {
    const tags = ['Snapshots'];

    app.get(
      '/v1/snapshots/list',
      {
        schema: {
          operationId: 'listSnapshots',
          summary: 'List every snapshot of the organization',
          tags,
          response: { ...responses(200, Type.Unsafe<Buffer>(SnapshotList)), 304: Type.Null() },
        },
      },
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
        config: { audit: 'snapshot.create' },
        schema: {
          operationId: 'createSnapshot',
          summary: 'Take a snapshot of a running instance',
          tags,
          body: CreateSnapshotRequest,
          response: responses(202, Message),
        },
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
        config: { audit: 'snapshot.delete' },
        schema: {
          operationId: 'deleteSnapshot',
          summary: 'Delete a snapshot',
          tags,
          params: SnapshotParams,
          response: responses(204, Type.Null()),
        },
      },
      async (request, reply) => {
        await snapshots.delete(actorOf(request), request.params.id);
        return reply.code(204).send(null);
      },
    );
  };
