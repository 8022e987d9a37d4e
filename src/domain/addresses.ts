/** IP addresses as text: which are the same, which belong together, which are in a list of networks. */
import { BlockList, isIP, isIPv4 } from 'node:net';

/** As one writes it: without a zone, and IPv4 as IPv4 although it came through an IPv6 socket (RFC 4291 2.5.5.2). */
export function plainAddress(address: string): string {
  const zoneless = address.split('%', 1)[0]?.toLowerCase() ?? '';
  const mapped = zoneless.startsWith('::ffff:') ? zoneless.slice(7) : '';
  return isIPv4(mapped) ? mapped : zoneless;
}

/**
 * What one customer of a provider has: an IPv4 address, or an IPv6 /64 (RFC 6177), in which a host may take a new
 * address for every request.
 */
export function addressGroup(plain: string): string {
  if (isIP(plain) !== 6) return plain;
  const [head = '', tail] = plain.split('::');
  const groups = head === '' ? [] : head.split(':');
  if (tail !== undefined) {
    const last = tail === '' ? [] : tail.split(':');
    const taken = groups.length + last.length + (tail.includes('.') ? 1 : 0);
    for (let missing = 8 - taken; missing > 0; missing--) groups.push('0');
    groups.push(...last);
  }
  const first = groups.slice(0, 4).map((group) => group.replace(/^0+(?=.)/, ''));
  return `${first.join(':')}::/64`;
}

export const isLoopback = (plain: string): boolean =>
  plain === '::1' || (isIPv4(plain) && plain.startsWith('127.'));

/** True for an address, or a network as `10.0.0.0/8` or `fd00::/8`. */
export const isNetwork = (text: string): boolean => parseNetwork(text) !== undefined;

interface Network {
  readonly address: string;
  readonly bits: number;
  readonly family: 'ipv4' | 'ipv6';
}

function parseNetwork(text: string): Network | undefined {
  const [address = '', bitsText, ...more] = text.split('/');
  const version = isIP(address);
  if (version === 0 || address.includes('%') || more.length > 0) return undefined;
  const widest = version === 4 ? 32 : 128;
  const bits = bitsText === undefined ? widest : Number(bitsText);
  if (bitsText !== undefined && !/^[0-9]{1,3}$/.test(bitsText)) return undefined;
  return bits <= widest ? { address, bits, family: version === 4 ? 'ipv4' : 'ipv6' } : undefined;
}

/** Addresses and networks to look up an address in. What is not one is left out: settings are checked when read. */
export class Networks {
  readonly #list = new BlockList();

  constructor(networks: readonly string[]) {
    for (const text of networks) {
      const network = parseNetwork(text);
      if (network) this.#list.addSubnet(network.address, network.bits, network.family);
    }
  }

  contains(plain: string): boolean {
    const version = isIP(plain);
    return version !== 0 && this.#list.check(plain, version === 4 ? 'ipv4' : 'ipv6');
  }
}
