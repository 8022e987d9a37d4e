/**
 * Rules for nftables on the host, in a table of their own.
 *
 * Incus drops what a guest sends with a hardware address that is not its own, but only once the bridge has looked at
 * it: the bridge learns all the same where that address "is", and sends the neighbour's traffic to the wrong guest
 * until the neighbour speaks again. These rules drop it before the bridge sees it. Incus has no setting for that.
 */

import { type Bridge, guestAddress, guestNames, type PortRange } from './guest-address.ts';
import { formatAddress, type Subnet, sizeOf } from './subnets.ts';

export const guardTable = (bridge: Bridge): string => `berth-${bridge.name}`;

/** For `nft -f`, as root, on every host; twice has the outcome of once. */
export function guardRules(bridge: Bridge, range: PortRange): string {
  const table = `table bridge ${guardTable(bridge)}`;
  const pairs = Array.from({ length: range.to - range.from + 1 }, (_unused, index) => {
    const { port, mac } = guestNames(guestAddress(bridge, range.from + index, range));
    return `"${port}" . ${mac}`;
  });
  const rules = patternsOf(bridge.subnet).map(
    (pattern) => `    iifname "${pattern}" iifname . ether saddr != @guests drop`,
  );
  return `# Who may send what on the bridge ${bridge.name}; made by Berth.
${table}
delete ${table}
${table} {
  set guests { type ifname . ether_addr; elements = { ${pairs.join(', ')} }; }
  chain prerouting {
    type filter hook prerouting priority -300; policy accept;
${rules.join('\n')}
  }
}
`;
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
