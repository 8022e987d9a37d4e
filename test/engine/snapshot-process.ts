/** A service that takes one snapshot, for a test to kill: node snapshot-process.ts DATA INSTANCE SNAPSHOT */

import { createSandboxEngine } from '../../src/engines/sandbox/sandbox.ts';
import { sandboxOptions } from './sandbox-bench.ts';

const [dataFolder = '', ref = '', snapshotRef = ''] = process.argv.slice(2);
const engine = await createSandboxEngine(sandboxOptions(dataFolder));
await engine.createSnapshot(ref, snapshotRef);
