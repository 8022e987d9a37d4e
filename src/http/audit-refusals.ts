import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { parseReference } from '../domain/ids.ts';
import type { AuditService } from '../services/audit.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** What a route that changes something is called in the audit log, as `noun.verb`. */
    audit?: string;
  }
}

/** What was done is audited by the services, in the transaction that did it; what was refused is audited here. */
export function auditRefusals(app: FastifyInstance, audit: AuditService): void {
  app.addHook('onResponse', async (request, reply) => {
    const action = request.routeOptions.config.audit;
    if (action === undefined || request.actor === null || reply.statusCode < 400) return;
    await audit.refused(request.actor, {
      action,
      subject: subjectOf(request),
      outcome: outcomeOf(reply),
    });
  });
}

/** The id in the path, if it can be one: a token or a key that strayed there is not written down. */
function subjectOf(request: FastifyRequest): string {
  const { id } = request.params as { id?: string };
  return id !== undefined && parseReference(id) ? id : '';
}

const outcomeOf = (reply: FastifyReply): string => `refused ${reply.statusCode}`;
