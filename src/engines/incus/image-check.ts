/**
 * Looks whether instances of an image will be what Berth promises: docs/incus.md, "What an image needs". It makes an
 * instance that is never started, so the first real one does not wait until the image is unpacked.
 */

import type { IncusClient } from './client.ts';
import type { ImageObject } from './images.ts';
import { isIncusError } from './incus-error.ts';

const deadlines = { timeoutMs: 5 * 60_000 };

interface Demand {
  readonly paths: readonly string[];
  /** For a file with text: what has to be in it. */
  readonly pattern?: RegExp;
  readonly otherwise: string;
}

const demands: readonly Demand[] = [
  {
    paths: ['/etc/passwd'],
    pattern: /^ubuntu:[^:]*:1000:1000:/m,
    otherwise: 'it has no user "ubuntu" with user and group id 1000',
  },
  { paths: ['/home/ubuntu/.ssh'], otherwise: 'there is no folder /home/ubuntu/.ssh' },
  {
    paths: ['/usr/sbin/sshd', '/usr/bin/sshd'],
    otherwise: 'it has no SSH server (openssh-server)',
  },
  { paths: ['/usr/bin/sudo'], otherwise: 'it has no sudo' },
  { paths: ['/usr/bin/flock', '/bin/flock'], otherwise: 'it has no flock (util-linux)' },
  { paths: ['/usr/bin/timeout', '/bin/timeout'], otherwise: 'it has no timeout (coreutils)' },
];

/** All that is missing, in words; empty for a good image, and for virtual machines, whose disks cannot be read. */
export async function checkImage(
  client: IncusClient,
  { fingerprint, type }: ImageObject,
  pool: string,
): Promise<string[]> {
  if (type === 'virtual-machine') return [];
  const name = `berth-image-check-${fingerprint.slice(0, 12)}`;
  const path = `/1.0/instances/${name}`;
  const remove = () =>
    client.change('DELETE', path, undefined, deadlines).catch((error: unknown) => {
      if (!isIncusError(error, 'not_found')) throw error;
    });
  // Of a check that was killed.
  await remove();
  const devices = { root: { type: 'disk', path: '/', pool } };
  const source = { type: 'image', fingerprint };
  await client.change('POST', '/1.0/instances', { name, source, devices, profiles: [] }, deadlines);
  try {
    const problems: string[] = [];
    for (const demand of demands)
      if (!(await isMet(client, path, demand))) problems.push(demand.otherwise);
    return problems;
  } finally {
    await remove();
  }
}

async function isMet(
  client: IncusClient,
  path: string,
  { paths, pattern }: Demand,
): Promise<boolean> {
  for (const wanted of paths) {
    const text = await read(client, `${path}/files`, wanted);
    if (text !== undefined && (pattern === undefined || pattern.test(text))) return true;
  }
  return false;
}

async function read(client: IncusClient, files: string, path: string): Promise<string | undefined> {
  try {
    const answer = await client.call('GET', files, undefined, { ...deadlines, query: { path } });
    return answer.body.toString('utf8');
  } catch (error) {
    if (isIncusError(error, 'not_found')) return undefined;
    throw error;
  }
}
