/** `berth admin engine check` for the sandbox. Looks at the host alone, so that a running service is not disturbed. */

import { type Finding, good, missing, weak } from '../../domain/findings.ts';
import { type Host, probeHost } from './host.ts';
import type { SandboxOptions } from './options.ts';

export async function checkSandbox(options: SandboxOptions): Promise<Finding[]> {
  const host = await probeHost(options);
  return [
    checkTool('SSH server', host.tools.sshd, 'openssh-server'),
    checkTool('ssh-keygen', host.tools.sshKeygen, 'openssh-client'),
    checkIsolation(host),
    host.ownNetwork
      ? good('network', 'each instance has its own')
      : good('network', 'instances share that of the host'),
    ...host.notices.map((notice) => weak('notice', notice, 'docs/sandbox.md says more.')),
  ];
}

const checkTool = (topic: string, path: string | undefined, name: string): Finding =>
  path === undefined
    ? missing(topic, 'is not installed', `As root: apt-get install --no-install-recommends ${name}`)
    : good(topic, path);

const checkIsolation = ({ isolation, tools }: Host): Finding =>
  isolation
    ? good('isolation', `namespaces, by ${tools.bwrap ?? 'bubblewrap'}`)
    : weak(
        'isolation',
        'none: instances take keys and give no shells',
        'The notice below says what this host does not permit.',
      );
