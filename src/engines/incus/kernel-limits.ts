/** Limits of the kernel that all containers of a host share: with the defaults about a dozen of them boot. */

import { readFileSync } from 'node:fs';

/** What Incus's manual says for hosts with many containers; keys and watches as root of the host itself has them. */
export const kernelLimits: Readonly<Record<string, number>> = {
  'fs.aio-max-nr': 524_288,
  'fs.inotify.max_queued_events': 1_048_576,
  'fs.inotify.max_user_instances': 1_048_576,
  'fs.inotify.max_user_watches': 1_048_576,
  'kernel.keys.maxbytes': 25_000_000,
  'kernel.keys.maxkeys': 1_000_000,
  'net.ipv4.neigh.default.gc_thresh3': 8192,
};

export const limitPath = (name: string): string => `/proc/sys/${name.replaceAll('.', '/')}`;

/** Names of those that are lower than that on this host. */
export const lowLimits = (): string[] =>
  Object.entries(kernelLimits)
    .filter(([name, wanted]) => read(name) < wanted)
    .map(([name]) => name);

/** One that this kernel does not have, or does not show in here, is nobody's limit. */
function read(name: string): number {
  try {
    return Number(readFileSync(limitPath(name), 'utf8'));
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
