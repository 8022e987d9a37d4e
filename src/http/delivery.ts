import type { FastifyReply } from 'fastify';

/**
 * Calls `action` once when the answer could not be handed to the network: the caller hung up before it was
 * written out. To be called right before the answer is sent.
 */
export function whenUndelivered(reply: FastifyReply, action: () => Promise<void>): void {
  const response = reply.raw;
  const act = () => {
    action().catch((error: unknown) =>
      reply.log.error({ err: error }, 'an undelivered answer was not taken back'),
    );
  };
  const gone = response.destroyed || response.socket === null || response.socket.destroyed;
  if (gone) act();
  else response.once('close', () => response.writableFinished || act());
}
