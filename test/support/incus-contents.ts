/** The pool and the image of a private Incus. */

import { homedir } from 'node:os';
import { join } from 'node:path';
import type { IncusClient } from '../../src/engines/incus/client.ts';
import { buildImage } from '../../src/engines/incus/image-build.ts';
import { Images } from '../../src/engines/incus/images.ts';
import { ensurePool } from '../../src/engines/incus/setup.ts';

type Say = (line: string) => void;

/** More than the disk may have: the file is sparse, and tests ask for large disks and write little. */
const usual = { name: 'berth', sizeGib: 400 };

export async function makePool(
  client: IncusClient,
  incusDir: string,
  say: Say,
  { name, sizeGib } = usual,
): Promise<string> {
  const unused = { network: '', sshPorts: { from: 0, to: 0 } };
  await ensurePool({ client, incusDir, pool: name, poolSizeGib: sizeGib, ...unused, say });
  return name;
}

/** Built the first time, which takes a minute; from then on it is in the cache of the person who runs the tests. */
export async function importImage(client: IncusClient, pool: string, say: Say): Promise<void> {
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const cacheFolder = join(cache, 'berth', 'images');
  const files = await buildImage({ cacheFolder, progress: say });
  const options = { progress: () => {} };
  await new Images(client, pool).import('base', { kind: 'files', files }, options);
}
