/**
 * Rules for nftables on the host, in tables of their own.
 *
 * Incus drops what a guest sends with a hardware address that is not its own, but only once the bridge has looked at
 * it: the bridge learns all the same where that address "is", and sends the neighbour's traffic to the wrong guest
 * until the neighbour speaks again. These rules drop it before the bridge sees it. Incus has no setting for that.
 *
 * Nor does Incus look into DHCP, which names a hardware address once more: with a neighbour's a guest could give up the
 * neighbour's lease. And Incus lets guests reach DNS and DHCP at every address of the host, whoever listens there.
 */

import { type Bridge, guestAddress, guestNames, type PortRange } from './guest-address.ts';
import { formatAddress, type Subnet, sizeOf } from './subnets.ts';

/** Of bridge rules, and of those for the host itself. */
export const guardTable = (bridge: Pick<Bridge, 'name'>): string => `berth-${bridge.name}`;

/** Chains that are there when the rules of this version are; family, table and name. */
export const guardChains = (bridge: Bridge): string[][] => [
  ['bridge', guardTable(bridge), 'sender'],
  ['inet', guardTable(bridge), 'input'],
];

const macBits = 48;
/** Of an address, which the last part of a guest's hardware address is. */
const sizeBits = 32;

/** For `nft -f`, as root, on every host; twice has the outcome of once. */
export function guardRules(bridge: Bridge, range: PortRange): string {
  const table = `table bridge ${guardTable(bridge)}`;
  const pairs = Array.from({ length: range.to - range.from + 1 }, (_unused, index) => {
    const { ports, mac } = guestNames(guestAddress(bridge, range.from + index, range));
    return ports.map((port) => `"${port}" . ${mac}`);
  }).flat();
  const jumps = patternsOf(bridge.subnet).map((pattern) => `iifname "${pattern}" jump sender`);
  return `# Who may send what on the bridge ${bridge.name}; made by Berth.
${table}
delete ${table}
${table} {
  set guests { type ifname . ether_addr; elements = { ${pairs.join(', ')} }; }
  chain dhcp {
${lines(dhcpRules(bridge.subnet))}
  }
  chain sender {
    iifname . ether saddr != @guests drop
    udp dport 67 jump dhcp
  }
  chain prerouting {
    type filter hook prerouting priority -300; policy accept;
${lines(jumps)}
  }
}
${hostRules(bridge)}`;
}

const lines = (rules: readonly string[]): string => rules.map((rule) => `    ${rule}`).join('\n');

/** A drop counts whatever Incus's own table lets through. */
function hostRules({ name, address }: Bridge): string {
  const table = `table inet ${guardTable({ name })}`;
  return `${table}
delete ${table}
${table} {
  chain input {
    type filter hook input priority -10; policy accept;
    iifname "${name}" ip daddr != ${address} tcp dport 53 drop
    iifname "${name}" ip daddr != ${address} udp dport 53 drop
    iifname "${name}" ip daddr != ${address} ip daddr != 255.255.255.255 udp dport 67 drop
  }
}
`;
}

/** RFC 2131, figure 1, behind the eight bytes of UDP's header: where a field begins, in bits. */
const field = { start: 64, relay: 256, hardwareAddress: 288, options: 1_952 };
/** A request (1) from Ethernet (1) with a hardware address of 6 bytes. */
const ownRequest = '0x010106';
/** The cookie, and at once the option 53 of length 1, which dnsmasq then goes by: DISCOVER, REQUEST, INFORM. */
const harmless = ['0x63825363350101', '0x63825363350103', '0x63825363350108'];

/**
 * What guests may send to DHCP: whole packets, with the hardware address that the frame has, and nothing that gives up
 * an address (RELEASE, DECLINE): the client's identifier, somewhere among the options, may be a neighbour's.
 *
 * nft cannot compare two fields, and nft 1.0.6 knows no sets of raw ones. So the part that all guests have alike is
 * compared at once, the rest bit by bit.
 */
function dhcpRules({ base, bits }: Subnet): string[] {
  const at = (start: number, length: number) => `@th,${start},${length}`;
  const { mac } = guestNames(formatAddress(base));
  const alike = BigInt(`0x${mac.replaceAll(':', '')}`) >> BigInt(sizeBits - bits);
  const isOther = Array.from({ length: sizeBits - bits }, (_unused, index) => {
    const place = macBits - 1 - index;
    const inFrame = `@ll,${macBits + place},1`;
    const inRequest = at(field.hardwareAddress + place, 1);
    return [`${inFrame} 0 ${inRequest} 1 drop`, `${inFrame} 1 ${inRequest} 0 drop`];
  });
  return [
    'ip frag-off & 0x3fff != 0 drop',
    `${at(field.start, 24)} != ${ownRequest} drop`,
    `${at(field.relay, 32)} != 0 drop`,
    `${at(field.hardwareAddress, macBits - sizeBits + bits)} != 0x${alike.toString(16)} drop`,
    ...isOther.flat(),
    ...harmless.map((start) => `${at(field.options, 56)} ${start} return`),
    'drop',
  ];
}

/**
 * What the names of all guests of the bridge begin with, and of no other bridge's. Not a set of names: nft 1.0.6 crashes
 * on every listing when nft 1.1 wrote such a rule, and takes Incus with it.
 */
function patternsOf({ base, bits }: Subnet): string[] {
  const digits = Math.ceil(bits / 4);
  const count = 2 ** (digits * 4 - bits);
  return Array.from({ length: count }, (_unused, index) => {
    const first = formatAddress(base + (index * sizeOf(bits)) / count);
    return `${guestNames(first).port.slice(0, 'bth'.length + digits)}*`;
  });
}
