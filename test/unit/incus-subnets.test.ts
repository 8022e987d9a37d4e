/** The network that the Incus setup picks: wide enough for every SSH port, and met by no route of the host. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  bitsFor,
  chooseSubnet,
  formatAddress,
  holds,
  parseSubnet,
  type Subnet,
} from '../../src/engines/incus/subnets.ts';

const subnet = (text: string): Subnet => {
  const parsed = parseSubnet(text);
  assert.ok(parsed, text);
  return parsed;
};
const chosen = (taken: readonly string[], bits = 20) => {
  const found = chooseSubnet(taken.map(subnet), bits);
  return found && `${formatAddress(found.base)}/${found.bits}`;
};

test('texts are read as the network that they are in', () => {
  assert.deepEqual(subnet('10.99.3.4/16'), subnet('10.99.0.0/16'));
  assert.deepEqual(subnet('192.0.2.7'), subnet('192.0.2.7/32'));
  assert.equal(formatAddress(subnet('203.0.113.254').base), '203.0.113.254');
  for (const text of ['', 'none', 'default', 'fd00::1/64', '10.0.0.256/8', '10.0.0.0/33', '10.0.0'])
    assert.equal(parseSubnet(text), undefined, text);
});

test('a network holds an address for every port, the bridge and what comes before them', () => {
  assert.equal(bitsFor(1), 20);
  assert.equal(bitsFor(4096 - 11), 20);
  assert.equal(bitsFor(4096 - 10), 19);
  assert.equal(bitsFor(65_535 - 1024 + 1), 16);
  assert.ok(holds(subnet('10.0.0.1/20'), 4096 - 11));
  assert.ok(!holds(subnet('10.0.0.1/20'), 4096 - 10));
  assert.ok(!holds(subnet('10.0.0.1/24'), 1000));
});

test('what is taken is passed over, whether it lies in a candidate or around it', () => {
  const first = chosen([]) ?? '';
  assert.match(first, /^10\./);
  const inside = `${first.split('/')[0]?.replace(/\.0$/, '.9')}`;
  for (const taken of [first, inside, first.replace('/20', '/12')])
    assert.notEqual(chosen([taken]), first, taken);
  // Just behind it.
  assert.equal(chosen([first.replace('.0.0/20', '.16.0/24')]), first);
});

test('with all of 10.0.0.0/8 routed away another private range is taken, and in the end none', () => {
  assert.match(chosen(['10.0.0.0/8']) ?? '', /^172\.(?:2\d|3[01])\.0\.0\/20$/);
  assert.match(chosen(['10.0.0.0/8', '172.16.0.0/12']) ?? '', /^192\.168\.0\.0\/20$/);
  assert.equal(chosen(['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16']), undefined);
});
