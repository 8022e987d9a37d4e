import { describe, it } from 'node:test';
import { skipIncus } from '../support/incus.ts';
import { describeEngine } from './engine-contract.ts';
import { openIncus } from './incus-bench.ts';

if (skipIncus === false) {
  describeEngine('incus', (ports) => openIncus(ports));
} else {
  describe('engine contract: incus', () => {
    it('needs an Incus', { skip: skipIncus }, () => undefined);
  });
}
