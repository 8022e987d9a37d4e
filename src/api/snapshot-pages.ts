import type { ListSnapshotsQuery, SnapshotList } from './snapshots.ts';
import type { Send } from './transport.ts';

/** What the list may be asked for; all texts. */
export type SnapshotFilter = ListSnapshotsQuery;

export interface SnapshotWish {
  /** Of the list at hand: nothing comes while it still holds. */
  readonly etag?: string | undefined;
  /** How long the service may hold the answer back for a change; it holds it for 60 at the most. */
  readonly waitSeconds?: number;
}

/** An answer of the list, and what its headers say. */
export interface SnapshotAnswer {
  readonly snapshots: SnapshotList;
  readonly etag: string | undefined;
  /** How many the filter lets through, on all pages together; absent for the plain list. */
  readonly total?: number;
  /** For `after`, when there are more. */
  readonly next?: string;
}

/** Undefined when the list is still the one of `wish.etag`. */
export async function askSnapshots(
  send: Send,
  filter: SnapshotFilter,
  { etag, waitSeconds }: SnapshotWish,
): Promise<SnapshotAnswer | undefined> {
  let answered = new Headers();
  const snapshots = await send<SnapshotList | undefined>('GET', '/v1/snapshots/list', {
    query: { ...filter },
    headers: {
      ...(etag !== undefined && { 'if-none-match': etag }),
      ...(waitSeconds !== undefined && { prefer: `wait=${waitSeconds}` }),
    },
    patienceMs: (waitSeconds ?? 0) * 1000,
    onHeaders: (headers) => {
      answered = headers;
    },
  });
  return snapshots && { snapshots, etag: answered.get('etag') ?? undefined, ...pagesOf(answered) };
}

function pagesOf(headers: Headers): Pick<SnapshotAnswer, 'total' | 'next'> {
  const total = headers.get('x-total-count');
  const target = /<([^>]*)>; rel="next"/.exec(headers.get('link') ?? '')?.[1];
  const next = target && new URLSearchParams(target.split('?')[1]).get('after');
  return { ...(total !== null && { total: Number(total) }), ...(next && { next }) };
}
