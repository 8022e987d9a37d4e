/** The settings of the sandbox engine. */

import type { Log } from '../engine.ts';

export type { Log } from '../engine.ts';

import type { LimitsSetting } from './cgroup-trees.ts';

export interface SandboxOptions {
  /** Absolute path. The engine owns the folder `sandbox` in it. */
  readonly dataDir: string;
  /** The host's address that SSH answers on. */
  readonly listenAddress: string;
  /** The one address of the host that ports of instances are published on. */
  readonly portsAddress: string;
  /** Give shells even where the host permits no isolation. */
  readonly allowUnconfinedShells: boolean;
  /** `auto`: a network of its own for each instance where the host permits one. */
  readonly network: 'auto' | 'host';
  /** `auto`: instances are held to their CPU and memory where the host permits it (cgroups.ts). */
  readonly limits: LimitsSetting;
  /** The system user that instances run as when the service is root; made when missing. */
  readonly sandboxUser: string;
  readonly log: Log;
  /** Act as on a host without namespaces. */
  readonly forceUnconfined?: boolean;
  readonly now?: () => Date;
}
