import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EngineError } from '../../src/engines/engine.ts';
import { guardRules } from '../../src/engines/incus/bridge-guard.ts';
import {
  type Bridge,
  guestAddress,
  guestNames,
  guestNic,
} from '../../src/engines/incus/guest-address.ts';
import { parseSubnet } from '../../src/engines/incus/subnets.ts';

function bridge(address: string): Bridge {
  const subnet = parseSubnet(address);
  assert.ok(subnet);
  return { name: 'berthbr0', address: address.split('/')[0] ?? '', subnet };
}

const range = { from: 22_000, to: 22_999 };

test('the address goes by the place of the SSH port in the range', () => {
  const wide = bridge('10.200.0.1/20');
  assert.equal(guestAddress(wide, 22_000, range), '10.200.0.10');
  assert.equal(guestAddress(wide, 22_245, range), '10.200.0.255');
  assert.equal(guestAddress(wide, 22_246, range), '10.200.1.0');
  assert.equal(guestAddress(wide, 22_999, range), '10.200.3.241');
});

test('no two ports have the same address, and none that of the bridge, wherever that is', () => {
  for (const own of ['10.200.0.1', '10.200.0.10', '10.200.1.7', '10.200.15.254']) {
    const addresses = new Set<string>();
    for (let port = range.from; port <= range.to; port += 1)
      addresses.add(guestAddress(bridge(`${own}/20`), port, range));
    assert.equal(addresses.size, 1000, own);
    assert.equal(addresses.has(own), false, own);
  }
});

test('a network that is too small, or a port out of the range, is an error that names the setting', () => {
  const refusal = (pattern: RegExp) => (error: unknown) => {
    assert.ok(error instanceof EngineError && error.kind === 'unavailable');
    assert.match(error.message, pattern);
    return true;
  };
  const small = bridge('10.200.0.1/24');
  assert.equal(guestAddress(small, 22_244, range), '10.200.0.254');
  const tooSmall = /10\.200\.0\.0\/24.*incus network set berthbr0.*BERTH_SSH_PORTS/;
  assert.throws(() => guestAddress(small, 22_245, range), refusal(tooSmall));
  for (const port of [21_999, 23_000])
    assert.throws(() => guestAddress(small, port, range), refusal(/BERTH_SSH_PORTS/));
});

test('the network card names the guest, its address and every filter', () => {
  assert.deepEqual(guestNic(bridge('10.200.0.1/20'), '10.200.3.241'), {
    type: 'nic',
    network: 'berthbr0',
    name: 'eth0',
    hwaddr: '02:be:0a:c8:03:f1',
    host_name: 'bth0ac803f1',
    'ipv4.address': '10.200.3.241',
    'security.mac_filtering': 'true',
    'security.ipv4_filtering': 'true',
    'security.ipv6_filtering': 'true',
    'security.port_isolation': 'true',
  });
});

test('the guard has each guest of the range with its own hardware address', () => {
  const few = { from: 22_000, to: 22_002 };
  const rules = guardRules(bridge('10.200.0.1/20'), few);
  for (const last of [10, 11, 12]) {
    const { port, ports, mac } = guestNames(`10.200.0.${last}`);
    assert.deepEqual(ports, [port, `${port}-1`, `${port}-2`, `${port}-3`]);
    for (const name of ports) assert.ok(rules.includes(`"${name}" . ${mac}`), name);
  }
  assert.equal(rules.match(/02:be:/g)?.length, 12);
});

test('the guard is about the names of the bridge, and of no other one', () => {
  const patterns = (address: string) =>
    [...guardRules(bridge(address), { from: 1, to: 1 }).matchAll(/ iifname "(.*?)\*"/g)].map(
      (match) => match[1],
    );
  assert.deepEqual(patterns('10.200.0.1/16'), ['bth0ac8']);
  assert.deepEqual(patterns('10.200.16.1/20'), ['bth0ac81']);
  assert.deepEqual(patterns('10.200.4.1/22'), ['bth0ac804', 'bth0ac805', 'bth0ac806', 'bth0ac807']);
});
