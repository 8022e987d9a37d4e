/** The sshd_config(5) of an instance. */

import { join } from 'node:path';
import { LOGIN_USER } from '../engine.ts';
import type { Host } from './host.ts';

const REFUSAL =
  'This host does not permit sandboxes, so no shell can be given. Its operator finds the reason in the readiness report of the service.';

const COMMON = [
  'PidFile none',
  'LogLevel INFO',
  'UseDNS no',
  'UsePAM no',
  'StrictModes yes',
  `AllowUsers ${LOGIN_USER}`,
  'PermitRootLogin no',
  'PubkeyAuthentication yes',
  'AuthenticationMethods publickey',
  'PasswordAuthentication no',
  'KbdInteractiveAuthentication no',
  'MaxAuthTries 20',
  'MaxSessions 100',
  // Far above what a burst of logins needs: refusing some at random would look like a fault of ours.
  'MaxStartups 500:30:1000',
  'LoginGraceTime 60',
  'X11Forwarding no',
  'PrintLastLog no',
  'AcceptEnv LANG LC_*',
  // Its primes are in a file of the host that a sandbox does not see.
  'KexAlgorithms -diffie-hellman-group-exchange-*',
  // In the process itself: no path of the host to find, and it works whatever the login shell prints.
  'Subsystem sftp internal-sftp',
];

/** As sshd reads it inside the sandbox. Port and address are given on its command line. */
export function sshdConfig(host: Host, address: string): string {
  return lines([
    ...COMMON,
    environment(address),
    ...hostKeys('/etc/ssh'),
    ...penalties(host),
    'AuthorizedKeysFile .ssh/authorized_keys',
  ]);
}

/** As sshd reads it on a host without namespaces, where paths are the host's own. */
export function unconfinedSshdConfig(
  instance: string,
  host: Host,
  options: { allowUnconfinedShells: boolean; address: string },
): string {
  const keys = join(instance, 'disk', 'home', LOGIN_USER, '.ssh', 'authorized_keys');
  const refusal = [
    `ForceCommand echo "${REFUSAL}"; exit 1`,
    'DisableForwarding yes',
    'PermitTTY no',
  ];
  return lines([
    ...COMMON,
    environment(options.address),
    ...hostKeys(join(instance, 'system', 'ssh')),
    ...penalties(host),
    `AuthorizedKeysFile "${keys}"`,
    ...(options.allowUnconfinedShells ? [] : refusal),
  ]);
}

/** One line: of several SetEnv, sshd keeps the first. What a client sends never goes before these. */
function environment(address: string): string {
  return `SetEnv LANG=C.UTF-8 BERTH_ADDRESS=${address}`;
}

function hostKeys(folder: string): string[] {
  return ['ed25519', 'ecdsa'].map((type) => `HostKey "${join(folder, `ssh_host_${type}_key`)}"`);
}

function penalties(host: Host): string[] {
  return host.sshdHasPenalties ? ['PerSourcePenalties no'] : [];
}

function lines(words: readonly string[]): string {
  return `${words.join('\n')}\n`;
}
