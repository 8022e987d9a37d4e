/** The engine on a host without namespaces: keys land, nobody gets a shell, and it says why. */

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Host } from '../../src/engines/sandbox/host.ts';
import { endSandboxes, sandboxProcesses } from '../support/processes.ts';
import { ssh } from '../support/ssh.ts';
import { Bench, numberedKey, rejectsWith } from './engine-contract.ts';
import { makeDataFolder, openSandbox } from './sandbox-bench.ts';

export function describeUnconfined(host: Host): void {
  const skip = host.tools.sshd === undefined ? 'sshd is missing' : false;
  describe('sandbox engine without namespaces', { skip }, () => {
    const dataFolder = makeDataFolder();
    const bench = new Bench(() => openSandbox(dataFolder, { forceUnconfined: true }));
    before(() => bench.setUp());
    after(async () => {
      await bench.tearDown();
      endSandboxes(dataFolder);
    });

    it('says what it cannot do', async () => {
      const { capabilities } = bench.engine;
      assert.equal(capabilities.shells, false);
      assert.equal(capabilities.snapshotPauses, false);
      const { ok, notices } = await bench.engine.health();
      assert.equal(ok, true);
      assert.match(notices.join(' '), /shells are refused/);
    });

    it('starts, takes keys, refuses shells, copies, stops and leaves nothing', async () => {
      const { engine } = bench;
      const { machine, login } = await bench.run();
      await engine.addKey(machine.ref, { publicKey: numberedKey(1) });
      const outcome = await ssh(login, 'echo a shell');
      assert.notEqual(outcome.code, 0);
      assert.doesNotMatch(outcome.stdout, /a shell/);
      if (host.tools.nssWrapper !== undefined)
        assert.match(outcome.stdout, /no shell can be given/);
      const snapshotRef = bench.snapshotRef();
      await engine.createSnapshot(machine.ref, snapshotRef);
      const again = await openSandbox(dataFolder, { forceUnconfined: true });
      assert.equal((await again.engine.inspect(machine.ref))?.state, 'running');
      await engine.delete(machine.ref);
      const copy = await bench.create({ kind: 'snapshot', snapshotRef });
      assert.match(await engine.readKeys(copy.ref), / key-1\n$/);
      await engine.start(copy);
      await engine.delete(copy.ref);
      await engine.deleteSnapshot(snapshotRef);
      assert.equal(sandboxProcesses(dataFolder).length, 0);
    });

    it('says that the port is taken, after the start of another instance on it', async () => {
      const { machine } = await bench.run();
      const second = { ...(await bench.create()), sshPort: machine.sshPort };
      await rejectsWith('port_taken', () => bench.engine.start(second));
    });
  });
}
