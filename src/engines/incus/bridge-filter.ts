/** What Incus asks of the kernel before it filters the addresses of a guest (`security.ipv6_filtering`). */

import { readFileSync } from 'node:fs';

/** A module of many kernels, which neither Incus nor its packages load. */
export const bridgeFilterModule = 'br_netfilter';

export const bridgeFilterSwitch = '/proc/sys/net/bridge/bridge-nf-call-ip6tables';

/** `off`: the module is there, and the switch is not 1. */
export function bridgeFilterState(file = bridgeFilterSwitch): 'on' | 'off' | 'missing' {
  try {
    return readFileSync(file, 'utf8').trim() === '1' ? 'on' : 'off';
  } catch {
    return 'missing';
  }
}
