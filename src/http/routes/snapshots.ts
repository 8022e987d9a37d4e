import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import type { FastifyReply, FastifyRequest } from 'fastify';
import {
  createSnapshotOperation,
  deleteSnapshotOperation,
  listSnapshotsOperation,
} from '../../api/snapshots.ts';
import type { SnapshotListService, SnapshotPage } from '../../services/snapshot-list.ts';
import {
  readSnapshotQuery,
  type SnapshotParameters,
  type SnapshotQuery,
} from '../../services/snapshot-query.ts';
import type { SnapshotService } from '../../services/snapshots.ts';
import type { TokenService } from '../../services/tokens.ts';
import { actorOf, bearerToken, requireScope } from '../auth.ts';
import { jsonType } from '../error-handler.ts';
import { matchesEtag } from '../etag.ts';
import { keepWithWork } from '../idempotency.ts';
import { preferredWaitSeconds } from '../prefer.ts';

const longestWaitSeconds = 60;

/** List, create and delete snapshots. */
export const snapshotRoutes =
  (
    snapshots: SnapshotService,
    list: SnapshotListService,
    tokens: TokenService,
  ): FastifyPluginAsyncTypebox =>
  async (app) => {
    // Whoever waits is answered before the service ends.
    app.addHook('preClose', async () => list.watch.stop());

    app.get(
      '/v1/snapshots/list',
      { config: { scope: 'snapshots:read' }, schema: listSnapshotsOperation },
      async (request, reply) => {
        const query = readSnapshotQuery(request.query);
        const waited = await findAfterWait(list, tokens, request, reply, query);
        const page = waited ?? (await list.find(actorOf(request), query));
        setListHeaders(reply, page, request.query);
        if (matchesEtag(request.headers['if-none-match'], page.etag))
          return reply.code(304).send(undefined);
        return reply.header('content-type', jsonType).send(page.body);
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
        const onConfirm = keepWithWork(request, reply.code(202), acceptedView);
        await snapshots.create(actorOf(request), instanceId, name, onConfirm);
        return reply.send(acceptedView(name));
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

const acceptedView = (name: string) => ({
  message: `The snapshot "${name}" is being created.`,
});

/** The list once it has changed, where the caller prefers to wait for that and may. */
async function findAfterWait(
  list: SnapshotListService,
  tokens: TokenService,
  request: FastifyRequest,
  reply: FastifyReply,
  query: SnapshotQuery | undefined,
): Promise<SnapshotPage | undefined> {
  const waitSeconds = preferredWaitSeconds(request.headers.prefer?.toString(), longestWaitSeconds);
  if (waitSeconds === undefined || waitSeconds === 0) return undefined;
  const known = request.headers['if-none-match'];
  const hangUp = new AbortController();
  reply.raw.once('close', () => hangUp.abort());
  const page = await list.findChanged(actorOf(request), query, {
    waitSeconds,
    // "*" names every list, so it is the next change that is waited for.
    ...(known !== undefined &&
      known.trim() !== '*' && { holds: (etag: string) => matchesEtag(known, etag) }),
    hungUp: hangUp.signal,
    check: () => stillMayRead(tokens, request),
  });
  if (page) reply.header('preference-applied', `wait=${waitSeconds}`);
  return page;
}

/** A token may be deleted, end, or lose its scope while its request waits. */
async function stillMayRead(tokens: TokenService, request: FastifyRequest): Promise<void> {
  const token = bearerToken(request.headers.authorization);
  requireScope(await tokens.authenticate(token, request.id), 'snapshots:read');
}

/** The plain list has none of these: it is whole. */
function setListHeaders(reply: FastifyReply, page: SnapshotPage, given: SnapshotParameters): void {
  reply.header('etag', page.etag);
  if (page.total !== undefined) reply.header('x-total-count', page.total);
  if (page.next === undefined) return;
  const { status, name, instance, fits_gb, limit } = given;
  const others = { status, name, instance, fits_gb, limit };
  const kept = Object.entries(others).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  const query = new URLSearchParams([...kept, ['after', page.next]]);
  reply.header('link', `</v1/snapshots/list?${query}>; rel="next"`);
}
