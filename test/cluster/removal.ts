/**
 * Removes a cluster (cluster.ts) with everything it has on this machine, however its test ended: without a word to the
 * daemons. Run as a program (../support/remover.ts) with the cluster's folder and the stem of its names.
 */

import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endDaemons, removeFolder } from '../support/incus-removal.ts';
import { ownerEnded } from '../support/remover.ts';
import { removeHosts } from './network.ts';

export const FOLDER_PREFIX = join(tmpdir(), 'berth-cluster-');

const stateFoldersIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(folder, name));

async function removeCluster(folder: string, stem: string): Promise<void> {
  await endDaemons(folder, stateFoldersIn(folder));
  await removeHosts(stem);
  removeFolder(folder);
}

if (import.meta.main) {
  const [folder = '', stem = ''] = process.argv.slice(2);
  if (!folder.startsWith(FOLDER_PREFIX)) throw new Error(`${folder} is no folder of ours.`);
  await ownerEnded();
  await removeCluster(folder, stem);
}
