/** The settings of the Incus engine. */

import type { Log } from '../engine.ts';

export type { Log } from '../engine.ts';

export interface IncusOptions {
  /**
   * Where Incus answers: `unix:<path of the socket>`, or `https://host:port` of one or more members of a cluster,
   * which are tried in turn.
   */
  readonly endpoints: readonly string[];
  /** For HTTPS: the client's certificate and key that the server trusts, and the server's own certificate, all PEM files. */
  readonly tls:
    | { readonly certFile: string; readonly keyFile: string; readonly serverCertFile: string }
    | undefined;
  readonly project: string;
  /** Every organization has an Incus project of its own. */
  readonly projectPerOrganization: boolean;
  readonly pool: string;
  readonly network: string;
  /** Mount the NVIDIA driver's libraries into instances that have a card of theirs; the host needs its container tools. */
  readonly nvidiaRuntime: boolean;
  /** The address of the host that SSH and published ports answer on; undefined: the bridge's own. */
  readonly listenAddress: string | undefined;
  /** SSH ports of instances: each has an address of the bridge's network by its place in here. */
  readonly sshPorts: { readonly from: number; readonly to: number };
  readonly log: Log;
  readonly now?: () => Date;
}
