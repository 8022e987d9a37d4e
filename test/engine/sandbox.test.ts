import { describe, it } from 'node:test';
import { probeHost } from '../../src/engines/sandbox/host.ts';
import { describeEngine } from './engine-contract.ts';
import { makeDataFolder, openSandbox, sandboxOptions } from './sandbox-bench.ts';
import { describeSandbox } from './sandbox-special.ts';
import { describeUnconfined } from './sandbox-unconfined.ts';

const host = await probeHost(sandboxOptions(''));

if (host.isolation && host.tools.sshd !== undefined) {
  describeEngine('sandbox', () => openSandbox(makeDataFolder()));
  describeSandbox();
} else {
  describe('engine contract: sandbox', () => {
    it('needs sandboxes', { skip: host.notices.join(' ') }, () => undefined);
  });
}
describeUnconfined(host);
