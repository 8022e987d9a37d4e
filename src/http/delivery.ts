import type { FastifyReply } from 'fastify';

/**
 * Calls `action` once when the answer could not be handed to the network: the caller hung up before it was
 * written out. To be called right before the answer is sent.
 */
export function whenUndelivered(reply: FastifyReply, action: () => Promise<void>): void {
  const response = reply.raw;
  if (response.destroyed || response.socket === null || response.socket.destroyed) {
    void action();
    return;
  }
  response.once('close', () => {
    if (!response.writableFinished) void action();
  });
}
