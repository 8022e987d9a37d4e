import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import { type AuditLine, listAuditOperation } from '../../api/audit.ts';
import { invalidRequest } from '../../domain/errors.ts';
import type { AuditService, AuditLine as Line } from '../../services/audit.ts';
import { actorOf } from '../auth.ts';

const usualLimit = 100;
const highestLimit = 1000;

/** The audit log of the caller's organization. */
export const auditRoutes =
  (audit: AuditService): FastifyPluginAsyncTypebox =>
  async (app) => {
    app.get(
      '/v1/audit',
      { config: { scope: 'admin' }, schema: listAuditOperation },
      async (request, reply) => {
        const limit = wholeNumber('limit', request.query.limit, highestLimit) ?? usualLimit;
        const before = wholeNumber('before', request.query.before, Number.MAX_SAFE_INTEGER);
        const page = await audit.list(actorOf(request), {
          limit,
          ...(before === undefined ? {} : { before }),
        });
        if (page.before !== undefined) {
          reply.header('link', `</v1/audit?limit=${limit}&before=${page.before}>; rel="next"`);
        }
        return page.lines.map(lineView);
      },
    );
  };

function wholeNumber(name: string, text: string | undefined, most: number): number | undefined {
  if (text === undefined) return undefined;
  const value = /^[0-9]{1,16}$/.test(text) ? Number(text) : 0;
  if (value >= 1 && value <= most) return value;
  throw invalidRequest(`The parameter "${name}" must be a whole number from 1 to ${most}.`);
}

const lineView = (line: Line): AuditLine => ({
  id: line.number,
  at: new Date(line.at).toISOString(),
  ...(line.token === undefined ? {} : { token: line.token }),
  ...(line.requestId === undefined ? {} : { request_id: line.requestId }),
  action: line.action,
  subject: line.subject,
  outcome: line.outcome,
  ...(line.hash === undefined ? {} : { hash: line.hash }),
});
