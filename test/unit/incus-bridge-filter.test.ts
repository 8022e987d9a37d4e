/** Whether Incus may filter the addresses of guests, as `berth admin engine check` sees it. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { bridgeFilterState } from '../../src/engines/incus/bridge-filter.ts';
import { checkBridgeFilter } from '../../src/engines/incus/check-host.ts';

test('the state is that of the switch, which is there when the module is', () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-bridge-filter-'));
  const file = join(folder, 'switch');
  try {
    assert.equal(bridgeFilterState(file), 'missing');
    writeFileSync(file, '0\n');
    assert.equal(bridgeFilterState(file), 'off');
    writeFileSync(file, '1\n');
    assert.equal(bridgeFilterState(file), 'on');
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('without it something is missing, with a command that helps', () => {
  assert.equal(checkBridgeFilter('on').state, 'good');
  const [absent, off] = [checkBridgeFilter('missing'), checkBridgeFilter('off')];
  assert.deepEqual([absent.state, off.state], ['missing', 'missing']);
  assert.match(absent.advice ?? '', /modprobe br_netfilter/);
  assert.match(off.advice ?? '', /bridge-nf-call-ip6tables has to be 1/);
});
