/**
 * Cuts what goes through a port that is not published any more. The host's firewall goes on forwarding a connection
 * that it knows, and Incus has no call to make it forget one; so the guest's kernel is told to reset it, by ss(8) in the
 * guest. It is the tenant's own guest: one that has replaced its ss keeps connections that it wants to keep.
 */

import type { IncusClient } from './client.ts';
import { IncusError } from './incus-error.ts';
import { instancePath, type Place } from './names.ts';

const cutMs = 5_000;

/** @throws IncusError; nothing else depends on it */
export async function cutConnections(
  client: IncusClient,
  place: Place,
  ports: readonly number[],
): Promise<void> {
  const those = ports.flatMap((port) => ['or', 'sport', '=', `:${port}`]).slice(1);
  const body = {
    command: ['ss', '--kill', '--no-header', '--tcp', 'state', 'connected', '(', ...those, ')'],
    environment: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
    user: 0,
    group: 0,
    'wait-for-websocket': false,
    'record-output': false,
    interactive: false,
  };
  const options = { project: place.project, timeoutMs: cutMs };
  const ended = await client.change('POST', `${instancePath(place)}/exec`, body, options);
  const status = (ended as { return?: number }).return;
  if (status !== 0) throw new IncusError('refused', `ss in the guest ended with ${status}.`);
}
