/** IPv4 networks as `10.0.0.0/20`: which fit how many instances, and which is free on a host. */

export interface Subnet {
  /** Its first address as a number. */
  readonly base: number;
  readonly bits: number;
}

/** Ours start at this place in a network: the bridge has the first. */
export const firstGuest = 10;
const widestBits = 20;

/** An address counts as a network of its own; undefined for what is neither. */
export function parseSubnet(text: string): Subnet | undefined {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:\/(\d{1,2}))?$/.exec(text);
  const numbers = (match ?? []).slice(1, 5).map(Number);
  const bits = Number(match?.[5] ?? 32);
  if (!match || numbers.some((part) => part > 255) || bits > 32) return undefined;
  const address = numbers.reduce((sum, part) => sum * 256 + part, 0);
  return { base: address - (address % sizeOf(bits)), bits };
}

export const sizeOf = (bits: number): number => 2 ** (32 - bits);

export const formatAddress = (address: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');

const overlap = (one: Subnet, other: Subnet): boolean =>
  one.base < other.base + sizeOf(other.bits) && other.base < one.base + sizeOf(one.bits);

/** The bits of a network in which every SSH port of the range has an address of its own; never a tiny one. */
export function bitsFor(ports: number): number {
  // One is lost at the end, to broadcasts.
  let bits = widestBits;
  while (sizeOf(bits) < ports + firstGuest + 1) bits -= 1;
  return bits;
}

export const holds = (subnet: Subnet, ports: number): boolean =>
  sizeOf(subnet.bits) >= ports + firstGuest + 1;

/** The first network of so many bits, in the ranges for private use (RFC 1918), that meets nothing that is taken. */
export function chooseSubnet(taken: readonly Subnet[], bits: number): Subnet | undefined {
  return candidates(bits).find((subnet) => !taken.some((other) => overlap(subnet, other)));
}

/** Those first that least people use; one in each /16, so that a neighbour may grow. */
function candidates(bits: number): Subnet[] {
  const tens = sequence(200, 254).concat(sequence(64, 199));
  const bases = [
    ...tens.map((second) => [10, second] as const),
    ...sequence(20, 31).map((second) => [172, second] as const),
    [192, 168] as const,
  ];
  return bases.map(([first, second]) => ({ base: first * 2 ** 24 + second * 2 ** 16, bits }));
}

const sequence = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_unused, index) => from + index);
