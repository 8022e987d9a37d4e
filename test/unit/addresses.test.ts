import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  addressGroup,
  isLoopback,
  isNetwork,
  Networks,
  plainAddress,
} from '../../src/domain/addresses.ts';

test('an address is written in one way', () => {
  assert.equal(plainAddress('::ffff:192.0.2.7'), '192.0.2.7');
  assert.equal(plainAddress('FE80::1%eth0'), 'fe80::1');
  assert.equal(plainAddress('192.0.2.7'), '192.0.2.7');
});

const sameGroup = [
  ['2001:db8:1:2::1', '2001:db8:1:2:ffff:ffff:ffff:ffff'],
  ['2001:db8::1', '2001:0db8:0:0::2'],
  ['::1:0:0:0:1', '0:0:0:1::'],
  ['2001:db8:1:2::1', '2001:db8:1:2:3:4:192.0.2.1'],
];
for (const [one = '', other = ''] of sameGroup)
  test(`${one} and ${other} are of one /64`, () =>
    assert.equal(addressGroup(one), addressGroup(other)));

const otherGroup = [
  ['2001:db8:1:2::1', '2001:db8:1:3::1'],
  ['::1', '0:0:0:1::1'],
  ['192.0.2.1', '192.0.2.2'],
];
for (const [one = '', other = ''] of otherGroup)
  test(`${one} and ${other} are not`, () =>
    assert.notEqual(addressGroup(one), addressGroup(other)));

test('what is this machine', () => {
  for (const address of ['127.0.0.1', '127.9.9.9', '::1']) assert.ok(isLoopback(address), address);
  for (const address of ['128.0.0.1', '127.evil.example', '::2', ''])
    assert.ok(!isLoopback(address), address);
});

test('what is an address or a network', () => {
  for (const text of ['10.0.0.1', '10.0.0.0/8', '0.0.0.0/0', '::1', 'fd00::/8', '::/0'])
    assert.ok(isNetwork(text), text);
  for (const text of [
    '',
    'proxy',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '::/129',
    '10.0.0/8',
  ])
    assert.ok(!isNetwork(text), text);
});

test('a list of networks contains what is in one of them', () => {
  const networks = new Networks(['10.0.0.0/8', '192.0.2.1', 'fd00::/8']);
  for (const address of ['10.255.0.1', '192.0.2.1', 'fd12::1'])
    assert.ok(networks.contains(address), address);
  for (const address of ['11.0.0.1', '192.0.2.2', 'fe80::1', 'nonsense', ''])
    assert.ok(!networks.contains(address), address);
});
