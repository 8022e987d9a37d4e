import { describe, it } from 'node:test';
import { skipIncus } from '../support/incus.ts';
import { describeEngine } from './engine-contract.ts';
import { openIncus } from './incus-bench.ts';
import { describeIncus } from './incus-special.ts';

if (skipIncus === false) {
  describeEngine('incus', (ports) => openIncus(ports));
  describeIncus();
} else {
  describe('engine contract: incus', () => {
    it('needs an Incus', { skip: skipIncus }, () => undefined);
  });
}
