/** A service of an ordinary user and its life with one instance: node ordinary-user-process.ts DATA SSH-PORT PORT */

import assert from 'node:assert/strict';
import { createSandboxEngine } from '../../src/engines/sandbox/sandbox.ts';
import { fetchText } from '../support/guest-server.ts';
import { networkHelpersOf } from '../support/processes.ts';
import { sandboxOptions } from './sandbox-bench.ts';

const [dataFolder = '', sshPort, port] = process.argv.slice(2);
const options = sandboxOptions(dataFolder, { network: 'auto', limits: 'off' });
const engine = await createSandboxEngine(options);
const machine = {
  ...{ ref: 'ordinary', hostname: 'ordinary', orgId: 'test', host: undefined, gpus: [] },
  ...{ cpuCores: 1, memoryGb: 1, diskSizeGb: 10, sshPort: Number(sshPort), httpPorts: [] },
};
const [template = ''] = engine.capabilities.templates;
await engine.create(machine, { kind: 'template', template }, []);
await engine.start(machine);
await engine.configure({ ...machine, httpPorts: [Number(port)] });
assert.equal(networkHelpersOf(process.pid).length, engine.capabilities.ownNetwork ? 1 : 0);
assert.match(await fetchText('127.0.0.1', Number(port)), /^ECONN(?:RESET|REFUSED)$/);
await engine.close({ stop: [] });
const next = await createSandboxEngine(options);
assert.equal((await next.inspect(machine.ref))?.state, 'running', 'adopted');
await next.stop(machine.ref);
await next.delete(machine.ref);
await next.close({ stop: [] });
