/**
 * The address of a guest, and its network card.
 *
 * An instance has an SSH port that no other one has, so its address on the bridge goes by that port, and nobody has to
 * look addresses up or keep a record of them. Its hardware address and the name of its port on the bridge go by the
 * address in turn: with these the host can tell who may send what (bridge-guard.ts).
 */

import { EngineError } from '../engine.ts';
import type { Device } from './instance-config.ts';
import { bitsFor, firstGuest, formatAddress, type Subnet, sizeOf } from './subnets.ts';

export interface Bridge {
  readonly name: string;
  /** Its own address. */
  readonly address: string;
  readonly subnet: Subnet;
}

export interface PortRange {
  readonly from: number;
  readonly to: number;
}

/**
 * The guest's address: the first of the network's that guests may have, and as many on as the port is in the range.
 * @throws EngineError `unavailable` when the network has none for that port
 */
export function guestAddress(bridge: Bridge, sshPort: number, range: PortRange): string {
  const offset = sshPort - range.from;
  if (offset < 0 || sshPort > range.to)
    throw new EngineError(
      'unavailable',
      `The SSH port ${sshPort} is not one of ${range.from} to ${range.to}. The operator can set BERTH_SSH_PORTS to a range that has it.`,
    );
  const { base, bits } = bridge.subnet;
  const plain = base + firstGuest + offset;
  const own = numberOf(bridge.address);
  // A bridge that is in their midst is stepped over.
  const address = own >= base + firstGuest && own <= plain ? plain + 1 : plain;
  // The last one is for broadcasts.
  if (address < base + sizeOf(bits) - 1) return formatAddress(address);
  const ports = range.to - range.from + 1;
  throw new EngineError(
    'unavailable',
    `The network "${bridge.name}" (${formatAddress(base)}/${bits}) is too small for the SSH ports ${range.from} to ${range.to}. The operator can give it a /${bitsFor(ports)} with: incus network set ${bridge.name} ipv4.address=ADDRESS/${bitsFor(ports)}, or set BERTH_SSH_PORTS to fewer ports.`,
  );
}

/** How many ports of a guest may be left over on its host before it does not start any more. */
const sparePorts = 3;

/** What the port of a guest on the bridge is called on its host, and its hardware address. */
export function guestNames(address: string): GuestNames {
  const bytes = address.split('.').map((part) => Number(part).toString(16).padStart(2, '0'));
  const port = `bth${bytes.join('')}`;
  const spares = Array.from({ length: sparePorts }, (_, index) => `${port}-${index + 1}`);
  // 02: administered locally (IEEE 802, section 8.4).
  return { port, ports: [port, ...spares], mac: ['02', 'be', ...bytes].join(':') };
}

export interface GuestNames {
  readonly port: string;
  /** With the names that it has when what a killed Incus left behind has the first. The host's rules know them all. */
  readonly ports: readonly string[];
  readonly mac: string;
}

/** The network card: with nobody's addresses but its own, and no way to a neighbour but by the host. */
export function guestNic(bridge: Bridge, address: string): Device {
  const { port, mac } = guestNames(address);
  return {
    type: 'nic',
    network: bridge.name,
    name: 'eth0',
    hwaddr: mac,
    host_name: port,
    'ipv4.address': address,
    'security.mac_filtering': 'true',
    'security.ipv4_filtering': 'true',
    'security.ipv6_filtering': 'true',
    'security.port_isolation': 'true',
  };
}

const numberOf = (address: string): number =>
  address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
