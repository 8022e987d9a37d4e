/** Opens a cluster, says where it is, and waits: for the test that kills it. */

import { once } from 'node:events';
import { Cluster } from './cluster.ts';

const { folder, stem } = await Cluster.start();
process.stdout.write(`${JSON.stringify({ folder, stem })}\n`);
await once(process.stdin.resume(), 'close');
